"""Starts, watches and reliably ends real processes."""

import atexit
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

_TAIL = 40
_alive: set["Process"] = set()


class ProcessError(RuntimeError):
    """A process ended or did not become ready; the message has the end of its log."""


def resident(pid: int, line: str = "VmRSS") -> int:
    """Bytes of resident memory of a process; 0 if it has ended.

    `line` is a name in /proc/PID/status: VmRSS is all, VmHWM the peak, and RssAnon what the process
    has to itself, without the pages of files such as its binary.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for each in status.splitlines():
        if each.startswith(f"{line}:"):
            return int(each.split()[1]) * 1024
    return 0


class Process:
    """A program in a process group of its own, with its output in one log file.

    It ends with the test run: at the interpreter's exit and, if setpriv(1) is installed, also when
    the interpreter is killed.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ):
        self.name = name
        self.command = [str(part) for part in command]
        self.log = log
        self.environment = dict(environment or {})
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._child.pid if self.running else None

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Starts the process; it appends to the log of an earlier run."""
        if self.running:
            raise ProcessError(f"{self.name} is running already")
        with self.log.open("ab") as log:
            start = partial(
                subprocess.Popen,
                [*_tied_to_us(), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
            self._child = _on_a_lasting_thread(start)
        _alive.add(self)

    def wait_until(self, ready: Callable[[], bool], timeout: float = 60.0) -> None:
        """Waits until `ready()` is true; fails at once if the process ends."""
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.running:
                raise ProcessError(f"{self.name} ended with {self.exit_code}{self.tail()}")
            if time.monotonic() > deadline:
                raise ProcessError(f"{self.name} is not ready after {timeout} s{self.tail()}")
            time.sleep(0.02)

    def wait_until_ended(self, timeout: float = 60.0) -> None:
        """Waits until the process has ended by itself."""
        self._child.wait(timeout)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last run; negative for a signal."""
        return self._child.poll() if self._child else None

    def stop(self, grace: float = 15.0) -> int | None:
        """Ends the process by SIGTERM, and by SIGKILL after the grace period; returns the exit
        code.
        """
        if self.running:
            self._signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(grace)
        return self.kill()

    def kill(self) -> int | None:
        """Ends the process group by SIGKILL."""
        if self in _alive:
            self._signal(signal.SIGKILL)
            self._child.wait()
            _alive.discard(self)
        return self.exit_code

    def pause(self) -> None:
        """Freezes the process (SIGSTOP): it keeps its connections but answers nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continues a frozen process."""
        self._signal(signal.SIGCONT)

    def hang_up(self) -> None:
        """Sends SIGHUP, on which a server reloads its configuration."""
        self._signal(signal.SIGHUP)

    def tail(self, lines: int = _TAIL) -> str:
        """The end of the log, for an error message."""
        try:
            text = self.log.read_text(errors="replace").splitlines()[-lines:]
        except FileNotFoundError:
            return ""
        return "".join(f"\n  {self.name} | {line}" for line in text)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)


def _tied_to_us() -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


def _on_a_lasting_thread(work: Callable[[], Any]) -> Any:
    """Calls `work` on a thread that lives as long as the interpreter: a process that is tied to us
    is killed at the end of the thread that started it.
    """
    if threading.current_thread() is threading.main_thread():
        return work()
    result = Future()
    _lasting_thread().put((work, result))
    return result.result()


@cache
def _lasting_thread() -> queue.SimpleQueue:
    """The work of a thread that does not end."""
    waiting = queue.SimpleQueue()

    def run() -> None:
        while True:
            work, result = waiting.get()
            try:
                result.set_result(work())
            except BaseException as error:
                result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return waiting


def free_ports(count: int) -> list[int]:
    """Different ports on which nothing listens on loopback. Clients get no such port from the
    kernel, so a server that ends can have it again at its next start.
    """
    kernel = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    below = int(kernel.split()[0])
    found: list[int] = []
    for port in random.SystemRandom().sample(range(below // 2, below), below // 4):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise ProcessError("no ports are free")


def listens(port: int) -> bool:
    """Whether something accepts connections at a port of loopback."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


@atexit.register
def _end_all() -> None:
    for process in list(_alive):
        process.kill()
