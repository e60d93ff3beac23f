"""A server of the Open Inference Protocol that does with a request what its first number says."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np

from inference import inference_pb2 as pb
from inference import inference_pb2_grpc

MODEL, INPUT, OUTPUT = "m", "x", "y"
# The numbers that requests are answered with this status for. Generated requests have smaller ones.
STATUSES = {
    101: grpc.StatusCode.UNAVAILABLE,
    102: grpc.StatusCode.INTERNAL,
    103: grpc.StatusCode.INVALID_ARGUMENT,
    104: grpc.StatusCode.NOT_FOUND,
    105: grpc.StatusCode.RESOURCE_EXHAUSTED,
    106: grpc.StatusCode.PERMISSION_DENIED,
    107: grpc.StatusCode.UNIMPLEMENTED,
    108: grpc.StatusCode.UNKNOWN,
}
# The numbers of requests that are answered wrongly, and that of those which are held.
SHAPE, NAN, ID, NAME, NO_OUTPUT, TYPE, ROWS, INFINITE, HELD = range(111, 120)


class Scripted(inference_pb2_grpc.GRPCInferenceServiceServicer):
    """The server. Use it as a context manager."""

    def __init__(self):
        self._server = grpc.server(ThreadPoolExecutor(40))
        inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._held, self._changed = 0, threading.Condition()
        self._released = threading.Event()

    def __enter__(self) -> "Scripted":
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.stop(None)

    def hold(self) -> None:
        """Holds requests from now on that ask for it."""
        self._released.clear()

    def release(self) -> None:
        """Answers the requests that are held."""
        self._released.set()

    def wait_until_held(self, count: int) -> None:
        """Waits until so many requests are held. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._held == count, timeout=20):
                raise TimeoutError(f"{self._held} requests are held instead of {count}")

    def ServerLive(self, request, context):
        """The server is live."""
        return pb.ServerLiveResponse(live=True)

    def ServerReady(self, request, context):
        """The server is ready."""
        return pb.ServerReadyResponse(ready=True)

    def ModelReady(self, request, context):
        """Its model is ready."""
        return pb.ModelReadyResponse(ready=request.name == MODEL)

    def ModelMetadata(self, request, context):
        """Describes the model."""
        described = pb.ModelMetadataResponse.TensorMetadata
        return pb.ModelMetadataResponse(
            name=MODEL,
            versions=["1"],
            platform="scripted",
            inputs=[described(name=INPUT, datatype="FP32", shape=[-1, 2])],
            outputs=[described(name=OUTPUT, datatype="FP32", shape=[-1, 1])],
        )

    def ModelInfer(self, request, context):
        """Scores each row by its second number, or does what the first one of all says."""
        rows = np.frombuffer(request.raw_input_contents[0], "<f4").reshape(-1, 2)
        told = int(rows[0, 0]) if len(rows) else 0
        if told in STATUSES:
            context.abort(STATUSES[told], f"the script says {told}")
        if told == HELD:
            self._hold()
        return _answer(request, rows[:, 1:].copy(), told)

    def _hold(self) -> None:
        self._count(1)
        self._released.wait(30)
        self._count(-1)

    def _count(self, change: int) -> None:
        with self._changed:
            self._held += change
            self._changed.notify_all()


def _answer(request: Any, scores: np.ndarray, told: int) -> pb.ModelInferResponse:
    answer = pb.ModelInferResponse(model_name=MODEL, model_version="1", id=request.id)
    if told == NAN:
        scores[-1] = np.nan
    elif told == INFINITE:
        scores[-1] = np.inf
    elif told == SHAPE:
        scores = np.repeat(scores, 2, axis=1)
    elif told == ROWS:
        scores = np.repeat(scores, 2, axis=0)
    elif told == ID:
        answer.id = "another"
    elif told == NAME:
        answer.model_name = "another"
    if told != NO_OUTPUT:
        kind = "INT32" if told == TYPE else "FP32"
        answer.outputs.add(name=OUTPUT, datatype=kind, shape=scores.shape)
        answer.raw_output_contents.append(scores.tobytes())
    return answer
