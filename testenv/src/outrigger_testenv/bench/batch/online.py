"""The latency of online requests while a batch job runs through the same front."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from outrigger_testenv.bench.batch import job
from outrigger_testenv.bench.figure import FULL, Effort, Failed, Measurement
from outrigger_testenv.bench.generator import CLOSED_LOOP, Report, rate, run
from outrigger_testenv.bench.setup import COLUMNAR, MODEL, Setup, new_stack, through
from outrigger_testenv.bench.spread import in_turns
from outrigger_testenv.processes import free_ports

# The part of the capacity that online requests take.
_ONLINE = 0.3
_DISTINCT = 1000
_GROUP = 100_000


def p99(setup: Setup, effort: Effort) -> Measurement:
    """The 99th percentile of requests at a part of the capacity beside a job, over that without."""
    (port,) = free_ports(1)
    models = [{"name": MODEL, "view": "features"}]
    overrides = {"server": {"oip": f"127.0.0.1:{port}"}, "models": models}
    with (
        tempfile.TemporaryDirectory(prefix="outrigger-bench-") as name,
        new_stack(overrides) as stack,
    ):
        setup.serve_model(stack)
        directory = Path(name)
        source = _rows(directory / "rows.parquet", 20_000_000 if effort == FULL else 5_000_000)
        side = through(stack, setup.package, COLUMNAR)
        load = rate(_ONLINE * run(side, CLOSED_LOOP, effort).throughput)
        scored: list[float] = []

        def beside() -> Report:
            output = directory / f"out-{len(scored)}"
            given = job.settings(source, output, MODEL, [f"127.0.0.1:{port}"], keys=[])
            with job.started(given) as process:
                job.wait_for_scores(process, output)
                report = run(side, load, effort)
                if not process.running:
                    raise Failed("the job ended before the measurement")
                scored.append(_rate(job.report(output)))
            return report

        turns = in_turns(effort.repeats, beside, lambda: run(side, load, effort))
    samples = [during.p99 / usual.p99 for during, usual in turns]
    conditions = {"load": list(load), "rows_per_second": scored}
    return Measurement(samples, conditions, [report.raw() for turn in turns for report in turn])


def _rate(report: dict[str, Any] | None) -> float:
    return (report or {}).get("rows_per_second", 0.0)


def _rows(file: Path, count: int) -> Path:
    """Rows of the reference model's features. Few of them differ, so that they take little room."""
    from outrigger_testenv.reference import TREATMENT_NAMES, USER_NAMES

    names = [*USER_NAMES, *TREATMENT_NAMES]
    values = np.random.default_rng(1).normal(size=(_DISTINCT, len(names))).astype("f4")
    group = np.tile(values, (_GROUP // _DISTINCT, 1))
    table = pa.table({name: group[:, at] for at, name in enumerate(names)})
    with pq.ParquetWriter(file, table.schema) as writer:
        for _ in range(0, count, _GROUP):
            writer.write_table(table)
    return file
