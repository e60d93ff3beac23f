"""The time and the CPU of a command with all processes that it starts."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from outrigger_testenv.bench.figure import Failed

# The time between two looks at the processes, in seconds: each look costs some milliseconds.
_LOOK = 0.2
_TICKS = os.sysconf("SC_CLK_TCK")
# The end of a command's output that an error shows, in bytes.
_TAIL = 2000


@dataclass(frozen=True)
class Cost:
    """The cost of a command: seconds from its start to its end, and CPU seconds."""

    seconds: float
    cpu: float

    def beyond(self, start: "Cost") -> "Cost":
        """The cost without that of a shorter run of the same command."""
        return Cost(self.seconds - start.seconds, self.cpu - start.cpu)


def of(
    command: Sequence[str | Path],
    log: Path,
    environment: Mapping[str, str] | None = None,
    look: Callable[[int], None] = lambda _: None,
    every: float = _LOOK,
) -> Cost:
    """Runs a command to its end, with its output in the file `log` and its messages in one beside
    it. `look` is called with its process id again and again, `every` so many seconds. Raises Failed
    if it fails.

    Two values are at most the CPU time: that of all processes whose parents have waited for them,
    and the sum over the tree of processes when they were looked at last. The larger one counts.
    """
    variables = {**os.environ, **(environment or {})}
    seen: dict[int, float] = {}
    began = time.monotonic()
    messages = log.with_suffix(".err")
    with log.open("wb") as output, messages.open("wb") as errors:
        process = subprocess.Popen(
            [str(part) for part in command], stdout=output, stderr=errors, env=variables
        )
    looked = 0.0
    try:
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            look(process.pid)
            if time.monotonic() - looked >= _LOOK:
                seen.update(_tree(process.pid))
                looked = time.monotonic()
            time.sleep(every)
    except BaseException:
        process.kill()
        process.wait()
        raise
    seconds = time.monotonic() - began
    _, status, usage = ended
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        end = (log.read_bytes() + messages.read_bytes())[-_TAIL:].decode(errors="replace")
        raise Failed(f"{Path(command[0]).name} ended with {process.returncode}: {end}")
    return Cost(seconds, max(usage.ru_utime + usage.ru_stime, sum(seen.values())))


def _tree(root: int) -> dict[int, float]:
    """The CPU seconds of a process and all that descend from it, by process id."""
    parents, times = {}, {}
    for directory in Path("/proc").glob("[0-9]*"):
        # A process may end meanwhile.
        with suppress(OSError):
            # The name, in brackets, may have blanks.
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            process = int(directory.name)
            parents[process] = int(fields[1])
            times[process] = (int(fields[11]) + int(fields[12])) / _TICKS
    return {process: used for process, used in times.items() if _descends(process, root, parents)}


def _descends(process: int, root: int, parents: Mapping[int, int]) -> bool:
    while process != root:
        process = parents.get(process, 0)
        if process == 0:
            return False
    return True
