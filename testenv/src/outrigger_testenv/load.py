"""Constant load from a separate process, by a client that retries only on request.

`Load` controls the process, which is `python -m outrigger_testenv.load`. Requests are encoded
before it starts, so that it measures the server only.
"""

import argparse
import asyncio
import json
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio
import numpy as np

from outrigger.v1 import prediction_pb2 as pb
from outrigger_testenv.errors import OutriggerError

_PREDICT = "/outrigger.v1.PredictionService/Predict"
_KEPT_ERRORS = 5
_PROGRESS = 1000
# A refused request is sent again after this time.
_PAUSE = 0.02
# A lane's time between an answer and its next request. Without it, lanes take all processors, and
# other tests beside them wait.
_THINKING = 0.01


@dataclass
class Report:
    """The report of a load run.

    `wrong` counts answers whose scores are not those expected of their digest, `repeated` the
    failures after which a patient client sent the request again. With a rate, `course` has a line
    for each request: the seconds since the beginning at which it was due, its latency in seconds
    (negative if it failed), the digest that answered it (empty if it failed), and true if live
    answered in place of a failed canary.
    """

    requests: int = 0
    failed: int = 0
    wrong: int = 0
    seconds: float = 0.0
    digests: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    first_errors: list[str] = field(default_factory=list)
    milliseconds: dict[str, float] = field(default_factory=dict)
    course: list[tuple[float, float, str, bool]] = field(default_factory=list)

    def __str__(self) -> str:
        latency = " ".join(f"{name} {value:.1f} ms" for name, value in self.milliseconds.items())
        return (
            f"{self.requests} requests in {self.seconds:.1f} s, {self.failed} failed, "
            f"{self.wrong} wrong, {len(self.digests)} digests; {latency}"
        )


class Load:
    """Sends requests one after the other on each of `concurrency` lanes until stopped, with a short
    pause after each answer. With `rate`, so many a second are due at set times, whether or not
    others are answered, and latencies count from these times.

    `expected` maps digests to the score that all their answers must have. `wait_for` waits for a
    digest's first answer. With `patient`, requests that meet UNAVAILABLE are sent again until
    their deadline, which is `deadline` seconds after the first attempt. The lanes are those of as
    many callers as there are `tokens`.
    """

    def __init__(
        self,
        target: str,
        requests: Iterable[pb.PredictRequest],
        directory: Path,
        concurrency: int = 8,
        expected: Mapping[str, float] | None = None,
        *,
        patient: bool = False,
        deadline: float = 30.0,
        rate: float | None = None,
        tokens: Sequence[str] = (),
    ):
        frames = [message.SerializeToString() for message in requests]
        if not frames:
            raise ValueError("no requests")
        self._requests = directory / "load-requests.bin"
        self._requests.write_bytes(b"".join(struct.pack("<I", len(each)) + each for each in frames))
        self._expected = directory / "load-expected.json"
        self._expected.write_text(json.dumps(dict(expected or {})))
        self._command = [sys.executable, "-m", "outrigger_testenv.load", target]
        self._command += [str(self._requests), str(self._expected), str(concurrency)]
        self._command += ["--deadline", str(deadline)]
        self._command += ["--patient"] if patient else []
        self._command += ["--rate", str(rate)] if rate else []
        self._command += [each for token in tokens for each in ("--token", token)]
        self._child: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._changed = threading.Condition()
        self._seen: set[str] = set()
        self._done = 0
        self._report: Report | None = None

    def __enter__(self) -> "Load":
        self._child = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_for(self, digest: str, timeout: float = 60.0) -> None:
        """Waits until an answer has come from the digest."""
        with self._changed:
            arrived = self._changed.wait_for(
                lambda: digest in self._seen or self._child.poll() is not None, timeout
            )
            if not arrived or digest not in self._seen:
                raise TimeoutError(f"no answer from {digest} within {timeout} s")

    def wait_until(self, requests: int, timeout: float = 600.0) -> None:
        """Waits until this number of requests has been answered."""
        with self._changed:
            arrived = self._changed.wait_for(
                lambda: self._done >= requests or self._child.poll() is not None, timeout
            )
            if not arrived or self._done < requests:
                raise TimeoutError(f"{self._done} of {requests} requests within {timeout} s")

    @property
    def answered(self) -> int:
        """The number of answered requests, as of the last progress message."""
        return self._done

    def stop(self) -> Report:
        """Stops after the requests in flight and returns the report."""
        if self._report is None:
            self._child.stdin.close()
            self._reader.join(60)
            self._child.wait(60)
            if self._report is None:
                raise RuntimeError(f"the load ended with {self._child.returncode} and no report")
        return self._report

    def _read(self) -> None:
        for line in self._child.stdout:
            message = json.loads(line)
            with self._changed:
                if "seen" in message:
                    self._seen.add(message["seen"])
                elif "done" in message:
                    self._done = message["done"]
                else:
                    message["digests"] = Counter(message["digests"])
                    message["errors"] = Counter(message["errors"])
                    message["repeated"] = Counter(message["repeated"])
                    self._report = Report(**message)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


class _Runner:
    def __init__(
        self,
        target: str,
        requests: list[bytes],
        expected: dict[str, float],
        patient: bool,
        deadline: float,
    ):
        self.target = target
        # The metadata of each caller; lanes take turns in them.
        self.callers: list[Sequence[tuple[str, str]]] = [()]
        self.patient = patient
        self.deadline = deadline
        self.requests = requests
        self.expected = expected
        self.report = Report()
        self.latencies: list[float] = []
        self.running = True

    async def run(self, concurrency: int, rate: float | None) -> Report:
        loop = asyncio.get_running_loop()
        watching = loop.run_in_executor(None, self._until_closed)
        start = time.monotonic()
        options = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
        if self.patient:
            options += [("grpc.initial_reconnect_backoff_ms", 50)]
            options += [("grpc.max_reconnect_backoff_ms", 200)]
        async with grpc.aio.insecure_channel(self.target, options=options) as channel:
            predict = channel.unary_unary(_PREDICT)
            async with asyncio.TaskGroup() as lanes:
                if rate is not None:
                    await self._at_rate(predict, rate, lanes)
                else:
                    for lane in range(concurrency):
                        lanes.create_task(self._lane(predict, lane))
        await watching
        self.report.seconds = time.monotonic() - start
        if self.latencies:
            for name, quantile in (("p50", 50), ("p99", 99), ("max", 100)):
                value = np.percentile(self.latencies, quantile) * 1000
                self.report.milliseconds[name] = float(value)
        return self.report

    def _until_closed(self) -> None:
        sys.stdin.read()
        self.running = False

    async def _lane(self, predict: grpc.aio.UnaryUnaryMultiCallable, lane: int) -> None:
        at, caller = lane, self.callers[lane % len(self.callers)]
        while self.running:
            await self._send(predict, at, time.perf_counter(), caller)
            at += 1
            await asyncio.sleep(_THINKING)

    async def _at_rate(
        self, predict: grpc.aio.UnaryUnaryMultiCallable, rate: float, lanes: asyncio.TaskGroup
    ) -> None:
        start, at = time.perf_counter(), 0
        while self.running:
            due = at / rate
            await asyncio.sleep(max(0.0, start + due - time.perf_counter()))
            lanes.create_task(self._record(predict, at, start, due))
            at += 1

    async def _record(
        self, predict: grpc.aio.UnaryUnaryMultiCallable, at: int, start: float, due: float
    ) -> None:
        answer = await self._send(predict, at, start + due)
        if answer is None:
            self.report.course.append((due, -1.0, "", False))
        else:
            took = time.perf_counter() - start - due
            stood_in = answer.HasField("degraded")
            self.report.course.append((due, took, answer.model.digest, stood_in))

    async def _send(
        self,
        predict: grpc.aio.UnaryUnaryMultiCallable,
        at: int,
        due: float,
        caller: Sequence[tuple[str, str]] = (),
    ) -> pb.PredictResponse | None:
        """Sends a request, counts its outcome, and returns the answer; None if it failed."""
        answer = None
        try:
            frame = await self._call(predict, self.requests[at % len(self.requests)], caller)
        except grpc.aio.AioRpcError as error:
            self._failed(error)
        else:
            self.latencies.append(time.perf_counter() - due)
            answer = pb.PredictResponse.FromString(frame)
            self._answered(answer)
        self.report.requests += 1
        if self.report.requests % _PROGRESS == 0:
            _print({"done": self.report.requests})
        return answer

    async def _call(
        self,
        predict: grpc.aio.UnaryUnaryMultiCallable,
        request: bytes,
        caller: Sequence[tuple[str, str]],
    ) -> bytes:
        deadline = time.monotonic() + self.deadline
        while True:
            left = deadline - time.monotonic()
            try:
                return await predict(
                    request, timeout=left, wait_for_ready=self.patient, metadata=caller
                )
            except grpc.aio.AioRpcError as error:
                unavailable = error.code() is grpc.StatusCode.UNAVAILABLE
                if not (self.patient and unavailable and left > _PAUSE):
                    raise
                self.report.repeated[_reason(error)] += 1
            await asyncio.sleep(_PAUSE)

    def _failed(self, error: grpc.aio.AioRpcError) -> None:
        report = self.report
        failure = OutriggerError.from_rpc(error)
        report.failed += 1
        report.errors[_reason(error)] += 1
        if len(report.first_errors) < _KEPT_ERRORS:
            report.first_errors.append(str(failure))

    def _answered(self, answer: pb.PredictResponse) -> None:
        digest = answer.model.digest
        if digest not in self.report.digests:
            _print({"seen": digest})
        self.report.digests[digest] += 1
        score = self.expected.get(digest)
        if score is not None and any(value != score for value in answer.scores.values):
            self.report.wrong += 1


def _reason(error: grpc.aio.AioRpcError) -> str:
    failure = OutriggerError.from_rpc(error)
    return failure.reason or failure.code.name


def _print(message: dict) -> None:
    print(json.dumps(message), flush=True)


def _frames(path: Path) -> list[bytes]:
    content, frames, at = path.read_bytes(), [], 0
    while at < len(content):
        (length,) = struct.unpack_from("<I", content, at)
        frames.append(content[at + 4 : at + 4 + length])
        at += 4 + length
    return frames


def main() -> int:
    """Runs until standard input is closed; prints one JSON object per line."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("target")
    parser.add_argument("requests", type=Path)
    parser.add_argument("expected", type=Path)
    parser.add_argument("concurrency", type=int)
    parser.add_argument("--patient", action="store_true")
    parser.add_argument("--deadline", type=float, required=True)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--token", action="append", default=[])
    options = parser.parse_args()
    expected = json.loads(options.expected.read_text())
    frames, patient, deadline = _frames(options.requests), options.patient, options.deadline
    runner = _Runner(options.target, frames, expected, patient, deadline)
    if options.token:
        runner.callers = [(("authorization", f"Bearer {each}"),) for each in options.token]
    report = asyncio.run(runner.run(options.concurrency, options.rate))
    _print(vars(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
