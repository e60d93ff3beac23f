"""The peak memory of a process, and a limit beyond which it is ended."""

import threading
from pathlib import Path

from outrigger_testenv.attack.case import MIB
from outrigger_testenv.processes import Process, resident

# An attack that succeeds must not take the memory of the machine: the attacked process is killed.
STOP = 3072 * MIB
_EVERY = 0.02


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used, in seconds at 100 ticks each."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


class Peak:
    """Records the peak from its start on. Use it as a context manager."""

    def __init__(self, process: Process):
        self._process = process
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self.bytes = 0
        self.stopped = False

    def __enter__(self) -> "Peak":
        if pid := self._process.pid:
            # 5 resets VmHWM (proc(5)).
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watcher.join()

    def _watch(self) -> None:
        while True:
            last = self._over.wait(_EVERY)
            pid = self._process.pid
            if pid is not None:
                self.bytes = max(self.bytes, resident(pid, "VmHWM"))
            if self.bytes > STOP and not self.stopped:
                self.stopped = True
                self._process.kill()
            if last:
                return
