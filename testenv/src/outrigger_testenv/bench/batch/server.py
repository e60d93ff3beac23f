"""A server of the Open Inference Protocol over gRPC with a given capacity, whose answers may be
wrong.

`python -m outrigger_testenv.bench.batch.server SETTINGS` takes the JSON of `Settings` and serves
until SIGTERM, when it writes its report: a JSON object of `Report`. Its model `m` has the input `x`
(FP32 [-1, width]) and the output `OUT_x`: the input, or constant values of another width.
"""

import asyncio
import json
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import grpc
import numpy as np

from inference import inference_pb2 as pb
from inference import inference_pb2_grpc

MODEL, INPUT, OUTPUT, VERSION = "m", "x", "OUT_x", "1"
LIES = ("error", "shape", "id")
"""The kinds of wrong answers, which are given by turns."""
# The time from a request to a wrong answer, in seconds.
_AT_ONCE = 0.001
_FLOAT = 4


@dataclass(frozen=True)
class Settings:
    """The behaviour of a server."""

    port: int
    # The file of the report. A file of the same name with `.first` is written at the first request.
    report: str
    # The requests that are worked on at a time, from so many seconds after the first one on.
    slots: Sequence[tuple[float, int]] = ((0.0, 8),)
    # The requests that may wait; further ones are refused. None: any number.
    queue: int | None = None
    # The time of a request in seconds, and the share by which it varies.
    service: float = 0.1
    jitter: float = 0.1
    # The share of requests that are answered wrongly.
    lies: float = 0.0
    # The numbers of a row of the input, and of the answer if it is not the input.
    width: int = 2
    answer_width: int | None = None
    # The seconds after the first request that the report is about. None: all.
    until: float | None = None


@dataclass
class Report:
    """The requests that ended within the time of the report, or began in it if they failed."""

    # The time of the first request and of the last answer with scores, in seconds since 1970.
    first: float | None = None
    last: float | None = None
    calls: int = 0
    scored: int = 0
    rows: int = 0
    refused: int = 0
    lies: int = 0
    # The time of each answer with scores, in seconds from the arrival of its request. Kept only if
    # the time of the report is limited.
    round_trips: list[float] = field(default_factory=list)


class Slots:
    """The places of requests that are worked on. Other requests wait for one in order."""

    def __init__(self, plan: Sequence[tuple[float, int]], queue: int | None):
        self._plan, self._queue = plan, queue
        self._count, self._used = plan[0][1], 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def begin(self) -> None:
        """Starts the plan."""
        loop = asyncio.get_running_loop()
        for after, count in self._plan:
            loop.call_later(after, self._change, count)

    def are_full(self) -> bool:
        """True if a request could not even wait."""
        may_wait = self._queue is None or len(self._waiting) < self._queue
        return self._used >= self._count and not may_wait

    async def take(self) -> None:
        """Waits for a place."""
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._fill()
        try:
            await place
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiting.remove(place)
            if place.done() and not place.cancelled():
                self.give()
            raise

    def give(self) -> None:
        """Gives a place back."""
        self._used -= 1
        self._fill()

    def _change(self, count: int) -> None:
        self._count = count
        self._fill()

    def _fill(self) -> None:
        while self._waiting and self._used < self._count:
            place = self._waiting.popleft()
            if not place.done():
                self._used += 1
                place.set_result(None)


class Servicer(inference_pb2_grpc.GRPCInferenceServiceServicer):
    """The protocol. It has no health of its own: it is ready while it runs."""

    def __init__(self, settings: Settings):
        self.settings, self.report = settings, Report()
        self._slots = Slots(settings.slots, settings.queue)
        self._random = random.Random(settings.port)
        self._began = 0.0
        width = settings.answer_width
        self._answer = None if width is None else _numbers(width)

    async def ServerLive(self, request, context):
        """The server is live."""
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request, context):
        """The server is ready."""
        return pb.ServerReadyResponse(ready=True)

    async def ModelReady(self, request, context):
        """The model is ready."""
        return pb.ModelReadyResponse(ready=True)

    async def ModelMetadata(self, request, context):
        """Describes the model."""
        width = self.settings.answer_width or self.settings.width
        inputs = [_described(INPUT, self.settings.width)]
        outputs = [_described(OUTPUT, width)]
        return pb.ModelMetadataResponse(
            name=MODEL, versions=[VERSION], platform="scripted", inputs=inputs, outputs=outputs
        )

    async def ModelInfer(self, request, context):
        """Scores rows, or refuses them, or lies."""
        arrived, report = time.monotonic(), self.report
        if report.first is None:
            self._first(arrived)
        is_counted = self._is_counted(arrived)
        report.calls += is_counted
        if self._random.random() < self.settings.lies:
            report.lies += is_counted
            return await self._lie(request, context)
        if self._slots.are_full():
            report.refused += is_counted
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests wait")
        await self._slots.take()
        try:
            vary = self.settings.jitter * self._random.uniform(-1, 1)
            await asyncio.sleep(self.settings.service * (1 + vary))
        finally:
            self._slots.give()
        self._scored(request, arrived)
        return self._reply(request)

    def _first(self, now: float) -> None:
        self._began = now
        self.report.first = time.time()
        self._slots.begin()
        Path(f"{self.settings.report}.first").write_text(str(self.report.first))

    def _is_counted(self, now: float) -> bool:
        until = self.settings.until
        return until is None or now - self._began < until

    def _scored(self, request, arrived: float) -> None:
        now, report = time.monotonic(), self.report
        if not self._is_counted(now):
            return
        report.last = time.time()
        report.scored += 1
        report.rows += request.inputs[0].shape[0]
        if self.settings.until is not None:
            report.round_trips.append(now - arrived)

    def _reply(self, request):
        (tensor,) = request.inputs
        rows, width = tensor.shape
        if self._answer is None:
            data = request.raw_input_contents[0]
        else:
            data, width = self._answer * rows, self.settings.answer_width
        return _response(request.id, (rows, width), data)

    async def _lie(self, request, context):
        kind = LIES[self.report.lies % len(LIES)]
        await asyncio.sleep(_AT_ONCE)
        if kind == "error":
            await context.abort(grpc.StatusCode.INTERNAL, "the model fails")
        (rows, width) = request.inputs[0].shape
        rows += kind == "shape"
        name = request.id if kind == "shape" else "another"
        return _response(name, (rows, width), bytes(_FLOAT * rows * width))


def _described(name: str, width: int):
    return pb.ModelMetadataResponse.TensorMetadata(name=name, datatype="FP32", shape=[-1, width])


def _numbers(width: int) -> bytes:
    """Numbers that do not compress well."""
    return np.random.default_rng(width).normal(size=width).astype("<f4").tobytes()


def _response(name: str, shape: Sequence[int], data: bytes):
    output = pb.ModelInferResponse.InferOutputTensor(name=OUTPUT, datatype="FP32", shape=shape)
    return pb.ModelInferResponse(
        model_name=MODEL,
        model_version=VERSION,
        id=name,
        outputs=[output],
        raw_output_contents=[data],
    )


async def serve(settings: Settings) -> None:
    """Serves until SIGTERM."""
    options = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
    server, servicer = grpc.aio.server(options=options), Servicer(settings)
    inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    server.add_insecure_port(f"127.0.0.1:{settings.port}")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await server.start()
    await ended.wait()
    Path(settings.report).write_text(json.dumps(asdict(servicer.report)))
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(serve(Settings(**json.loads(sys.argv[1]))))
