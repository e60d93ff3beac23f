"""Real processes: started, watched, and surely ended."""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_TAIL = 40
_alive: set["Process"] = set()


class ProcessError(RuntimeError):
    """A process ended or did not become ready; the message has the end of its log."""


class Process:
    """A program in a process group of its own, its output in one log file.

    It ends with the test run: at interpreter exit, and, where setpriv(1) exists,
    also when the interpreter is killed.
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
        """Its process id while it runs."""
        return self._child.pid if self.running else None

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Starts it; the log of an earlier run is continued."""
        if self.running:
            raise ProcessError(f"{self.name} is running already")
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [*_tied_to_us(), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        _alive.add(self)

    def wait_until(self, ready: Callable[[], bool], timeout: float = 60.0) -> None:
        """Returns when `ready()` is true; fails at once when the process ends."""
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.running:
                raise ProcessError(f"{self.name} ended with {self.exit_code}{self.tail()}")
            if time.monotonic() > deadline:
                raise ProcessError(f"{self.name} is not ready after {timeout} s{self.tail()}")
            time.sleep(0.02)

    @property
    def exit_code(self) -> int | None:
        """Of the last run; negative for a signal."""
        return self._child.poll() if self._child else None

    def stop(self, grace: float = 15.0) -> int | None:
        """Asks it to end (SIGTERM), insists after the grace period; returns the exit code."""
        if self.running:
            self._signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(grace)
        return self.kill()

    def kill(self) -> int | None:
        """Ends it and everything it started, without asking."""
        if self in _alive:
            self._signal(signal.SIGKILL)
            self._child.wait()
            _alive.discard(self)
        return self.exit_code

    def pause(self) -> None:
        """Freezes it (SIGSTOP): it keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Ends a pause."""
        self._signal(signal.SIGCONT)

    def tail(self, lines: int = _TAIL) -> str:
        """The end of its log, for an error message."""
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


def free_ports(count: int) -> list[int]:
    """Ports that nothing on loopback listens on, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@atexit.register
def _end_all() -> None:
    for process in list(_alive):
        process.kill()
