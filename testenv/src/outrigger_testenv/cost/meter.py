"""Counts what a program does, by callgrind and a library that is loaded into the program."""

import os
import re
import shutil
import statistics
import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from outrigger_testenv.processes import Process

# The programs that counting needs.
PROGRAMS = ("valgrind", "vgdb", "cc", "objcopy")
# Functions of mimalloc that allocate, and those of it that may call each other.
_ALLOCATES = re.compile(r"mi_(heap_)?([mzc]alloc|realloc)")
_OWN = re.compile(r"_?mi_")
# The start of a call; its end has a line of its own. Times are system calls under valgrind only.
_CALL = re.compile(
    rb"^SYSCALL\[\d+,\d+\]\( *\d+\) (?!\.\.\.|sys_clock_gettime|sys_gettimeofday|sys_time\b)",
    re.MULTILINE,
)
_LIBRARY = "copies.so"
# Pairs of windows, of which one is twice as long as the other.
_PAIRS = 3


@dataclass(frozen=True)
class Counts:
    """Counts of the control plane."""

    instructions: float
    allocations: float
    copied_bytes: float
    system_calls: float

    def __sub__(self, other: "Counts") -> "Counts":
        return Counts(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __truediv__(self, by: float) -> "Counts":
        return Counts(*(each / by for each in astuple(self)))


def missing() -> list[str]:
    """The programs that are not installed."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


class Meter:
    """Counts one program, whose files are in `directory`."""

    def __init__(self, directory: Path):
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._copies = directory / "copies"
        self._copies.write_bytes(bytes(8))
        self._log = directory / "valgrind.log"
        self._dump = directory / "callgrind"
        self._text = ""
        self._pid = 0
        self._dumps = self._seen = self._before = 0
        library = directory / _LIBRARY
        source = Path(__file__).with_name("copies.c")
        # The loop must not become a call of the function that it is in.
        flags = ["-O2", "-fPIC", "-shared", "-fno-builtin", "-fno-tree-loop-distribute-patterns"]
        subprocess.run(["cc", *flags, "-o", library, source], check=True)
        self.environment = {"LD_PRELOAD": str(library), "OUTRIGGER_COPIES": str(self._copies)}

    def command(self, command: Sequence[str | Path], at_start: bool = True) -> list[str]:
        """The command under callgrind, which counts instructions from the start or only later."""
        return [
            "valgrind",
            "--tool=callgrind",
            f"--instr-atstart={'yes' if at_start else 'no'}",
            "--compress-strings=no",
            "--compress-pos=no",
            "--dump-line=no",
            f"--callgrind-out-file={self._dump}",
            "--trace-syscalls=yes",
            f"--log-file={self._log}",
            *map(str, command),
        ]

    def watch(self, process: Process) -> None:
        """Makes a process that has not started one whose counts are taken after `begin`."""
        process.command = self.command(process.command, at_start=False)
        process.environment |= self.environment

    def begin(self, process: Process) -> None:
        """Counts from now on. The process runs."""
        self._pid = process.pid
        self._tell("instrumentation", "on")

    def read(self) -> Counts:
        """The counts since the last call, or since `begin`."""
        self._tell("dump")
        self._dumps += 1
        return self._counts(Path(f"{self._dump}.{self._dumps}"))

    @property
    def ran(self) -> set[tuple[str, str]]:
        """The functions that ran before the last counts, each with the path of its file."""
        return functions(self._text)

    def run(self, command: Sequence[str | Path], **options: object) -> Counts:
        """The counts of a command from its start to its end. Raises CalledProcessError."""
        environment = {**os.environ, **self.environment}
        subprocess.run(
            self.command(command),
            check=True,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            **options,
        )
        return self._counts(self._dump)

    def slope(self, work: Callable[[], object], count: int) -> Counts:
        """The counts of one call of `work`, from windows of `count` calls and of twice as many."""
        few, many = [], []
        self.read()
        for _ in range(_PAIRS):
            for calls, windows in ((count, few), (2 * count, many)):
                for _ in range(calls):
                    work()
                windows.append(self.read())
        return (median(many) - median(few)) / count

    def _tell(self, *words: str) -> None:
        subprocess.run(
            ["vgdb", f"--pid={self._pid}", *words],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=120,
        )

    def _counts(self, dump: Path) -> Counts:
        self._text = dump.read_text()
        dump.unlink()
        instructions, allocations = parsed(self._text)
        with self._log.open("rb") as log:
            log.seek(self._seen)
            text = log.read()
        self._seen += len(text)
        (copied,) = struct.unpack("<Q", self._copies.read_bytes())
        since, self._before = copied - self._before, copied
        return Counts(instructions, allocations, since, len(_CALL.findall(text)))


def without_lines(program: Path, target: Path) -> Path:
    """A copy of the program without the tables of lines, which take valgrind long to read."""
    subprocess.run(["objcopy", "--strip-debug", program, target], check=True)
    return target


def median(counts: Sequence[Counts]) -> Counts:
    """The median of each count."""
    return Counts(*map(statistics.median, zip(*map(astuple, counts), strict=True)))


def parsed(dump: str) -> tuple[int, int]:
    """The user instructions, without those that count copies, and the allocations in a dump."""
    total = uncounted = allocations = 0
    place = function = called = ""
    inclusive = False
    for line in dump.splitlines():
        key, _, value = line.partition("=")
        if key == "ob":
            place = value
        elif key == "fn":
            function = value
        elif key == "cfn":
            called = value
        elif key == "calls":
            # The next line has what the called function cost.
            inclusive = True
            if _ALLOCATES.match(called) and not _OWN.match(function):
                allocations += int(value.split()[0])
        elif line.startswith("totals:"):
            total = int(line.split()[1])
        elif line[:1] in "0123456789+-*" and line:
            if not inclusive and place.endswith(_LIBRARY):
                uncounted += int(line.split()[-1])
            inclusive = False
    return total - uncounted, allocations


def functions(dump: str) -> set[tuple[str, str]]:
    """The functions in a dump, each with the path of its file."""
    found, file = set(), ""
    for line in dump.splitlines():
        key, _, value = line.partition("=")
        if key == "fl":
            file = value
        elif key == "fn":
            found.add((file, value))
    return found
