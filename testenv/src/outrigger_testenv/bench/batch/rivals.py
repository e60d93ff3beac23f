"""Ways to score the rows of a file with a model on Triton: `outrigger batch`, and other clients."""

import json
import secrets
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq

from outrigger_testenv.bench.batch import cost, job, programs
from outrigger_testenv.bench.batch.cost import Cost
from outrigger_testenv.bench.batch.rows import Rows
from outrigger_testenv.bench.figure import Failed
from outrigger_testenv.oip import environments
from outrigger_testenv.oip.peers import Peer

OUTRIGGER, MLSERVER, RAY, CONCURRENT = "outrigger", "mlserver", "ray", "asyncio"
BATCH = 256
"""The rows of a request."""

# The numbers of outputs, so that no two have one place.
_NUMBERS = count()
_PROGRAMS = Path(programs.__file__).parent
# The column and the tensor of the answers.
_SCORES = "OUT_x"


@dataclass(frozen=True)
class Task:
    """Rows to score with a model on Triton. Files of all tasks are in `directory`."""

    directory: Path
    triton: Peer
    model: str
    rows: Rows

    @property
    def source(self) -> Path:
        """The Parquet file with the rows, written if it is not there."""
        file = self.directory / f"rows-{self.rows.count}.parquet"
        return file if file.exists() else self.rows.write(file)

    @property
    def lines(self) -> Path:
        """The same rows as requests in JSON, a line each, written if they are not there."""
        file = self.directory / f"rows-{self.rows.count}.jsonl"
        if not file.exists():
            values = self.rows.values()
            with file.open("w") as opened:
                for row in range(self.rows.count):
                    opened.write(_line(row, values[row % len(values)].tolist()))
        return file

    def output(self, name: str) -> Path:
        """A place for an output, which is not there yet."""
        return self.directory / f"{name}-{next(_NUMBERS)}"


def _line(row: int, values: Sequence[float]) -> str:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, len(values)], "data": values}
    return json.dumps({"id": f"row-{row}", "inputs": [tensor]}) + "\n"


def outrigger(task: Task) -> Cost:
    """The cost of a batch job. Raises Failed if its output is wrong."""
    output = task.output(OUTRIGGER)
    hosts = [task.triton.grpc]
    ended = job.run(job.settings(task.source, output, task.model, hosts, batch_size=BATCH))
    if wrong := task.rows.wrong(output, _SCORES):
        raise Failed(f"{wrong} rows of the batch job are wrong")
    return ended.cost


def mlserver(task: Task) -> Cost:
    """The cost of `mlserver infer`, whose rows are lines of JSON, in and out."""
    program = environments.environment(environments.MLSERVER) / "bin" / "mlserver"
    output = task.output(MLSERVER)
    command = [program, "infer", "--url", task.triton.rest, "--model-name", task.model]
    command += ["--input-data-path", task.lines, "--output-data-path", output.with_suffix(".jsonl")]
    taken = cost.of([*command, "--batch-size", str(BATCH)], output.with_suffix(".log"))
    with output.with_suffix(".jsonl").open() as lines:
        scored = sum('"outputs"' in line for line in lines)
    return _checked(MLSERVER, task, scored, taken)


def ray(task: Task) -> Cost:
    """The cost of Ray Data with all its processes."""
    # Otherwise it sends statistics to its authors, and writes a token into the home directory.
    variables = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    python = environments.python(environments.RAY)
    # The names of its sockets would be too long in the directory of the task.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as directory:
        variables["RAY_TMPDIR"] = directory
        return _program(python, "rayjob.py", (RAY, task, task.triton.rest), variables)


def concurrent(task: Task) -> Cost:
    """The cost of a script with Triton's asynchronous client."""
    python = environments.python(environments.SCRIPT)
    return _program(python, "script.py", (CONCURRENT, task, task.triton.grpc), {})


RIVALS: dict[str, Callable[[Task], Cost]] = {
    MLSERVER: mlserver,
    RAY: ray,
    CONCURRENT: concurrent,
}
"""The other clients. Each raises environments.Missing if it cannot be installed."""


def _program(
    python: Path, program: str, of: tuple[str, Task, str], variables: dict[str, str]
) -> Cost:
    """The cost of a program that reads and writes Parquet."""
    name, task, address = of
    output = task.output(name)
    target = output.with_suffix(".parquet")
    command = [python, _PROGRAMS / program, address, task.model, task.source, target, str(BATCH)]
    taken = cost.of(command, output.with_suffix(".log"), variables)
    files = sorted(target.glob("*.parquet")) if target.is_dir() else [target]
    scored = sum(map(_scored, files))
    return _checked(name, task, scored, taken)


def _scored(file: Path) -> int:
    """The rows of a file with scores."""
    return pq.ParquetFile(file).metadata.num_rows if _SCORES in pq.read_schema(file).names else 0


def _checked(name: str, task: Task, scored: int, taken: Cost) -> Cost:
    if scored != task.rows.count:
        raise Failed(f"{name} has scored {scored} of {task.rows.count} rows")
    return taken
