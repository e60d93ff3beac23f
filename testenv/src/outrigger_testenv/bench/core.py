"""A load generator over gRPC's C core, by Python's grpcio: a closed loop in several processes.

It sends encoded messages as they are in files, and prints one JSON object with the keys of
`outrigger bench -o json`. The exit code is 1 if a request failed or none was answered.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import sys
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
import grpc.aio
import numpy as np

from outrigger_testenv.client import channel_options
from outrigger_testenv.errors import OutriggerError

PREDICT = "/outrigger.v1.PredictionService/Predict"
# The server may have to load the model before the first answer.
_FIRST = 60.0
# From when all processes are connected until they send.
_LEAD = 0.05


@dataclass(frozen=True)
class Share:
    """The work of one process."""

    target: str
    requests: tuple[bytes, ...]
    connections: int
    in_flight: int
    timeout: float
    # The method that is called.
    method: str = PREDICT


@dataclass(frozen=True)
class Window:
    """The beginning of the load and the time that counts, of time.monotonic(), which all processes
    of a machine share.
    """

    begin: float
    counted_from: float
    end: float


@dataclass
class Counts:
    """Counts of the measured time."""

    # Seconds.
    latencies: array = field(default_factory=lambda: array("d"))
    response_bytes: int = 0
    errors: Counter = field(default_factory=Counter)
    codes: Counter = field(default_factory=Counter)
    # CPU seconds of the process.
    cpu: float = 0.0

    def add(self, other: "Counts") -> None:
        """Adds the counts of another process."""
        self.latencies.extend(other.latencies)
        self.response_bytes += other.response_bytes
        self.errors.update(other.errors)
        self.codes.update(other.codes)
        self.cpu += other.cpu


def send(share: Share, parent: Connection) -> None:
    """Connects, reports that to the parent, gets the window, sends the load, returns the counts."""
    asyncio.run(_Sender(share, parent).run())


class _Sender:
    def __init__(self, share: Share, parent: Connection):
        self.share = share
        self.parent = parent
        self.window = Window(0, 0, 0)
        self.counts = Counts()

    async def run(self) -> None:
        share = self.share
        options = channel_options(share.target)
        channels = [
            grpc.aio.insecure_channel(share.target, options) for _ in range(share.connections)
        ]
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        # Without serializers the messages are passed on as they are.
        calls = [channel.unary_unary(share.method) for channel in channels]
        self.parent.send("connected")
        self.window = self.parent.recv()
        await _until(self.window.begin)
        clock = asyncio.create_task(self._measure_cpu())
        lanes = (self._lane(calls[at % len(calls)], at) for at in range(share.in_flight))
        await asyncio.gather(*lanes, clock)
        await asyncio.gather(*(channel.close() for channel in channels))
        self.parent.send(self.counts)

    async def _measure_cpu(self) -> None:
        await _until(self.window.counted_from)
        before = time.process_time()
        await _until(self.window.end)
        self.counts.cpu = time.process_time() - before

    async def _lane(self, call: grpc.aio.UnaryUnaryMultiCallable, lane: int) -> None:
        requests, turn = self.share.requests, lane
        while (sent := time.monotonic()) < self.window.end:
            answer, failure = b"", None
            try:
                answer = await call(requests[turn % len(requests)], timeout=self.share.timeout)
            except grpc.aio.AioRpcError as error:
                failure = error
            self._count(sent, time.monotonic(), answer, failure)
            turn += self.share.in_flight

    def _count(
        self, sent: float, ended: float, answer: bytes, error: grpc.aio.AioRpcError | None
    ) -> None:
        if not self.window.counted_from <= ended < self.window.end:
            return
        if error is None:
            self.counts.latencies.append(ended - sent)
            self.counts.response_bytes += len(answer)
        else:
            failure = OutriggerError.from_rpc(error)
            self.counts.errors[failure.reason or failure.code.name] += 1
            self.counts.codes[failure.code.name] += 1


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


def seconds(text: str) -> float:
    """A duration, written 500ms or 2s."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"a duration is written 500ms or 2s, not {text}")
    return float(found[1]) / (1000 if found[2] == "ms" else 1)


def process(text: str) -> tuple[str, int]:
    """A process, written NAME=PID."""
    name, _, number = text.partition("=")
    if not name or not number.isdigit():
        raise argparse.ArgumentTypeError(f"a process is written NAME=PID, not {text}")
    return name, int(number)


def positive(text: str) -> int:
    """A number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number of at least 1, not {text}")
    return int(text)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The options, which are those of the generator in Go."""
    parser = argparse.ArgumentParser(
        prog="python -m outrigger_testenv.bench.core", description=__doc__
    )
    parser.add_argument("-target", required=True, help="the server's HOST:PORT, without TLS")
    parser.add_argument(
        "-request",
        type=Path,
        action="append",
        required=True,
        help="a file with an encoded PredictRequest; several are sent in turn",
    )
    parser.add_argument("-save", type=Path, help="directory for the first answer to each request")
    parser.add_argument("-connections", type=positive, default=2)
    parser.add_argument("-in-flight", type=positive, default=16)
    parser.add_argument("-timeout", type=seconds, default=1.0, help="timeout of a request")
    parser.add_argument("-warmup", type=seconds, default=2.0)
    parser.add_argument("-duration", type=seconds, default=10.0)
    parser.add_argument(
        "-processes", type=positive, default=os.cpu_count() or 1, help="sending processes, at most"
    )
    parser.add_argument(
        "-pid", type=process, action="append", default=[], help="NAME=PID, to report its CPU time"
    )
    return parser.parse_args(given)


def first_answers(options: argparse.Namespace, requests: Sequence[bytes]) -> None:
    """Sends each request once, and saves the answers."""
    with grpc.insecure_channel(options.target, channel_options(options.target)) as channel:
        call = channel.unary_unary(PREDICT)
        for at, request in enumerate(requests):
            answer = call(request, timeout=max(_FIRST, options.timeout), wait_for_ready=True)
            if options.save:
                (options.save / f"answer-{at}.binpb").write_bytes(answer)


def shares(options: argparse.Namespace, requests: Sequence[bytes]) -> list[Share]:
    """The work of each process; none is without a connection or a request in flight."""
    count = min(options.processes, options.connections, options.in_flight)
    return [
        Share(
            options.target,
            tuple(requests),
            _part(options.connections, at, count),
            _part(options.in_flight, at, count),
            options.timeout,
        )
        for at in range(count)
    ]


def _part(whole: int, at: int, count: int) -> int:
    return whole // count + (at < whole % count)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    work: Sequence[Share], warmup: float, duration: float, processes: Sequence[tuple[str, int]]
) -> tuple[Counts, dict[str, float]]:
    """Runs all sending processes; returns their counts, and the CPU seconds of the given processes
    within the measured time.
    """
    children = [_spawn(share) for share in work]
    for child in children:
        child.recv()
    begin = time.monotonic() + _LEAD
    window = Window(begin, begin + warmup, begin + warmup + duration)
    for child in children:
        child.send(window)
    reads = []
    for moment in (window.counted_from, window.end):
        time.sleep(max(0.0, moment - time.monotonic()))
        reads.append({name: cpu_seconds(pid) for name, pid in processes})
    total = Counts()
    for child in children:
        total.add(child.recv())
    before, after = reads
    return total, {name: after[name] - before[name] for name in after}


def _spawn(share: Share) -> Connection:
    # A forked process must not use grpcio again.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=send, args=(share, theirs), daemon=True).start()
    # With the other end closed here, a process that ends early ends our wait for it.
    theirs.close()
    return ours


def quantiles(latencies: Sequence[float]) -> dict[str, float] | None:
    """Quantiles of latency in milliseconds."""
    if not len(latencies):
        return None
    values = np.array(latencies) * 1e3
    parts = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    found = {name: float(np.quantile(values, part)) for name, part in parts.items()}
    return {**found, "mean": float(values.mean())}


def report(
    options: argparse.Namespace, requests: Sequence[bytes], counts: Counts, cpu: dict[str, float]
) -> dict:
    """The report, with the keys of `outrigger bench -o json`."""
    answered = len(counts.latencies)
    ended = answered + sum(counts.errors.values())
    return {
        "client": f"grpcio {grpc.__version__}, Python {sys.version.split()[0]}",
        "mode": "max",
        "duration_seconds": options.duration,
        "offered_rate": None,
        "requests": ended,
        "ok": answered,
        "throughput": answered / options.duration,
        "errors": dict(counts.errors),
        "codes": dict(counts.codes),
        "latency_ms": quantiles(counts.latencies),
        "cpu_seconds_per_request": {
            name: spent / max(ended, 1) for name, spent in {**cpu, "client": counts.cpu}.items()
        },
        "request_bytes": sum(map(len, requests)) / len(requests),
        "response_bytes": counts.response_bytes / answered if answered else None,
        "settings": {
            "duration_seconds": options.duration,
            "warmup_seconds": options.warmup,
            "connections": options.connections,
            "in_flight": options.in_flight,
            "timeout_seconds": options.timeout,
            "processes": min(options.processes, options.connections, options.in_flight),
        },
    }


def main(given: Sequence[str] | None = None) -> int:
    """Runs the load and prints the report; returns the exit code."""
    options = arguments(given)
    requests = [file.read_bytes() for file in options.request]
    try:
        first_answers(options, requests)
    except grpc.RpcError as error:
        print(
            f"the first request is not answered: {OutriggerError.from_rpc(error)}", file=sys.stderr
        )
        return 1
    work = shares(options, requests)
    counts, cpu = measure(work, options.warmup, options.duration, options.pid)
    result = report(options, requests, counts, cpu)
    print(json.dumps(result, indent=2))
    failed = result["requests"] - result["ok"]
    if failed or not result["ok"]:
        print(f"{failed} of {result['requests']} requests failed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
