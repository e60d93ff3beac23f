"""The neighbour: a caller of a good model at a steady rate, which is `outrigger bench`."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.binary import outrigger

WARMUP = 0.5


@dataclass(frozen=True)
class Report:
    """The neighbour's latencies in milliseconds, and its failures by reason."""

    p50: float
    p99: float
    requests: int
    failures: dict[str, int]
    rate: float


def steady(rate: int) -> Sequence[str]:
    """The load of so many requests a second, with patience."""
    return "--rate", str(rate), "--timeout", "10s"


def call(
    target: str,
    model: str,
    package: Path,
    seconds: float,
    load: Sequence[str],
    *,
    authority: Path | None = None,
) -> Report:
    """Predicts for `seconds`, over TLS if there is an authority to trust; returns the report.

    Raises Broken if the run cannot begin.
    """
    command = [str(outrigger()), "bench", "--server", target, "--model", model]
    command += ["--package", str(package), "--treatments", "10", *load]
    command += ["--warmup", f"{WARMUP}s", "--duration", f"{seconds:g}s"]
    command += ["--output", "json", "--quiet"]
    command += ["--ca", str(authority)] if authority else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise Broken(f"the neighbour cannot call: {done.stderr.strip()[-200:]}")
    report = json.loads(done.stdout)
    latency = report["latency_ms"]
    return Report(
        latency.get("p50") or 0.0,
        latency.get("p99") or 0.0,
        report["requests"],
        dict(report["errors"]),
        report["throughput"],
    )
