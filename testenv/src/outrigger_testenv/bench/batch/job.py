"""`outrigger batch run` as a process that is watched."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outrigger_testenv.bench.batch import cost
from outrigger_testenv.bench.batch.cost import Cost
from outrigger_testenv.bench.figure import Failed
from outrigger_testenv.binary import outrigger
from outrigger_testenv.processes import Process, resident

# The time between two looks at a job, in seconds.
_LOOK = 0.05


@dataclass
class Seen:
    """The last that was seen of a worker while it ran."""

    # The peak of its resident memory, in bytes.
    resident: int = 0
    # Its own report, as it stores it each second.
    report: dict[str, Any] = field(default_factory=dict)

    def look(self, process: int, output: Path) -> None:
        """Looks at the worker with this process id."""
        self.resident = max(self.resident, resident(process, "VmHWM"))
        self.report = report(output) or self.report


@dataclass(frozen=True)
class Ended:
    """A job that is finished."""

    cost: Cost
    # The summary that the command prints.
    summary: Mapping[str, Any]
    seen: Seen

    def raw(self) -> dict[str, Any]:
        """All that is known of it."""
        known = {"cpu_seconds": self.cost.cpu, "resident": self.seen.resident}
        return {**known, **self.summary, "report": self.seen.report}


def settings(
    source: Path, output: Path | str, model: str, hosts: Sequence[str], **keys: Any
) -> dict[str, Any]:
    """The settings of a job."""
    return {"input": str(source), "output": str(output), "model": model, "hosts": [*hosts], **keys}


def run(job: Mapping[str, Any]) -> Ended:
    """Runs a job to its end. Raises Failed if it fails."""
    output, seen = Path(job["output"]), Seen()
    log = output.with_suffix(".out")
    command = _command(job, output)
    taken = cost.of(command, log, look=lambda pid: seen.look(pid, output), every=_LOOK)
    return Ended(taken, json.loads(log.read_text()), seen)


@contextmanager
def started(
    job: Mapping[str, Any], beside: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """A job that runs, and is killed at the end. Its files are beside `beside`, usually its output,
    which a store of objects may have.
    """
    beside = beside or Path(job["output"])
    command = _command(job, beside)
    process = Process("batch run", command, beside.with_suffix(".log"), environment)
    process.start()
    try:
        yield process
    finally:
        process.kill()


def change(
    output: Path | str, *assignments: str, environment: Mapping[str, str] | None = None
) -> None:
    """Changes settings of a job that runs. Raises Failed if they are refused."""
    command = [outrigger(), "batch", "set", output, *assignments]
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=variables)
    if done.returncode != 0:
        raise Failed(f"batch set: {done.stderr}")


def report(output: Path) -> dict[str, Any] | None:
    """The report of a job's only worker; None if there is none just now."""
    for file in output.glob("worker/*.json"):
        # A worker removes its report when it ends.
        with suppress(OSError):
            return json.loads(file.read_text())
    return None


def wait_for_scores(process: Process, output: Path) -> None:
    """Waits until a job has scored rows."""
    process.wait_until(lambda: (report(output) or {}).get("scored", 0) > 0)


def _command(job: Mapping[str, Any], beside: Path) -> list[str | Path]:
    """Writes the settings beside this place; returns the command."""
    file = beside.with_suffix(".yaml")
    # JSON is valid YAML.
    file.write_text(json.dumps(job, indent=2))
    return [outrigger(), "batch", "run", file, "-o", "json"]
