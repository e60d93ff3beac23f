"""The server that is checked."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import grpc
from google.protobuf.message import Message

from outrigger_testenv.conformance_oip import http, rpc
from outrigger_testenv.conformance_oip.clients import CLIENTS, results
from outrigger_testenv.conformance_oip.http import HEADER_LENGTH, JSON, TIMEOUT, Answer
from outrigger_testenv.conformance_oip.tensors import encoded, tensor, told
from outrigger_testenv.oip import environments
from outrigger_testenv.oip.models import IDENTITY, identity

# Parts that a server may lack, for the field `needs` of a case, besides the names of clients.
BINARY, STATISTICS, INDEX, UNREADY, LIMIT = "binary", "statistics", "index", "unready", "limit"
UNTYPED = "JSON without a content type"

FP32 = identity("FP32")
OCTETS = "application/octet-stream"


# Models that may have another output besides, since not every one can be a score.
_OTHERS = {"nonfinite", *map(identity, IDENTITY)} - {FP32}


def asked(model: str) -> list[dict[str, str]]:
    """The outputs that a request to a model names if the check does not say more."""
    return [{"name": "OUT_x"}] if model in _OTHERS else []


@dataclass(frozen=True)
class Lack:
    """Why a case is not tried. `is_offered_by_others` is True if the server lacks the part, and
    False if the run was not told where it is.
    """

    reason: str
    is_offered_by_others: bool


@dataclass(frozen=True)
class Place:
    """The addresses of a server: HOST:PORT for REST and for gRPC."""

    rest: str
    grpc: str


@dataclass
class Server:
    """A server with the models of the checks. `unready` is one of the same kind with the model
    `never`, `repository` the address of gRPC's load and unload if it is another one, and `largest`
    the size in bytes of the largest message over gRPC by its settings.
    """

    place: Place
    unready: Place | None = None
    repository: str = ""
    largest: int | None = None
    _channels: dict[str, grpc.Channel] = field(default_factory=dict)
    _results: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def close(self) -> None:
        """Closes the connections."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    # REST.

    def get(self, path: str, method: str = "GET", place: Place | None = None) -> Answer:
        """A request without a body."""
        headers = {} if method == "GET" else {"Content-Length": 0}
        return http.exchange((place or self.place).rest, http.head(method, path, headers))

    def post(
        self, path: str, body: bytes, *, place: Place | None = None, **headers: object
    ) -> Answer:
        """A request with a body; an underscore in the name of a header is a hyphen. A header that
        is None is not sent.
        """
        names = {"Content-Type": JSON, "Content-Length": len(body)}
        names |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in names.items() if value is not None}
        return http.exchange((place or self.place).rest, http.head("POST", path, sent), body)

    def infer(self, model: str, request: Any, path: str = "", **headers: object) -> Answer:
        """An inference over REST with an object as JSON, or with bytes."""
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        return self.post(f"/v2/models/{model}{path}/infer", body, **headers)

    def sends(self, *inputs: Mapping[str, Any], model: str = FP32, **fields: Any) -> str:
        """The answer to an inference over REST with these inputs, as text."""
        outputs = {"outputs": asked(model)} if asked(model) else {}
        return told(self.infer(model, {"inputs": list(inputs), **outputs, **fields}))

    def binary(
        self, request: Any, *contents: bytes, model: str = FP32, length: object = None
    ) -> Answer:
        """An inference with the JSON and the binary tensors behind it. `length` replaces the
        length of the JSON in the header.
        """
        start = request if isinstance(request, bytes) else json.dumps(request).encode()
        headers = {"Content-Type": OCTETS, HEADER_LENGTH: len(start) if length is None else length}
        path = f"/v2/models/{model}/infer"
        return self.post(path, b"".join([start, *contents]), **headers)

    # gRPC.

    def channel(self, address: str = "") -> grpc.Channel:
        """The connection to an address, or to that of gRPC."""
        address = address or self.place.grpc
        if address not in self._channels:
            self._channels[address] = rpc.channel(address)
        return self._channels[address]

    def call(self, method: str, /, place: Place | None = None, **fields: Any) -> Message:
        """Calls a method. Raises grpc.RpcError."""
        channel = self.channel(place.grpc if place else "")
        return rpc.call(channel, method, rpc.request(method, **fields))

    def calls(
        self,
        method: str,
        show: Callable[[Any], object],
        /,
        place: Place | None = None,
        **fields: Any,
    ) -> str:
        """The answer of a method, as text."""
        return rpc.outcome(lambda: f"OK {show(self.call(method, place, **fields))}")

    def send(self, request: rpc.Request, place: Place | None = None) -> Message:
        """Calls ModelInfer. Raises grpc.RpcError."""
        return rpc.call(self.channel(place.grpc if place else ""), "ModelInfer", request)

    def begin(self, request: rpc.Request, timeout: float = TIMEOUT) -> grpc.Future:
        """Begins to call ModelInfer, with a deadline of `timeout` seconds."""
        return rpc.begin(self.channel(), "ModelInfer", request, timeout)

    def infers(self, *inputs: Mapping[str, Any], model: str = FP32, **fields: Any) -> str:
        """The answer to an inference over gRPC with these inputs, as text."""
        return self.answers(rpc.infer(model, *inputs, outputs=asked(model), **fields))

    def answers(self, request: rpc.Request, place: Place | None = None) -> str:
        """The answer to an inference over gRPC, as text."""
        return rpc.outcome(lambda: rpc.told(self.send(request, place)))

    # The abilities of the server.

    def lacks(self, part: str) -> Lack | None:
        """Why the server cannot be asked for a part, or None if it can."""
        if part == UNREADY:
            return None if self.unready else Lack("needs a server that is not ready", False)
        if part == LIMIT:
            return None if self.largest else Lack("needs the limit of messages", False)
        if part in CLIENTS:
            return self._lacks_client(part)
        has = {
            BINARY: lambda: self.has_binary,
            STATISTICS: lambda: self.has_statistics,
            INDEX: lambda: self.has_index,
            UNTYPED: lambda: self.has_untyped,
        }
        return None if has[part]() else Lack(f"does not have: {part}", True)

    def _lacks_client(self, client: str) -> Lack | None:
        try:
            environments.installed(client)
        except environments.Missing as missing:
            return Lack(str(missing), False)
        return None

    def through(self, client: str) -> Mapping[str, str]:
        """The results of a client of another project, by the names of its calls. Raises
        RuntimeError.
        """
        if client not in self._results:
            self._results[client] = results(client, self.place.rest, self.place.grpc)
        return self._results[client]

    @cached_property
    def has_binary(self) -> bool:
        """True if the server reads binary tensors over REST."""
        inputs = [tensor(None, [1, 2], binary_data_size=8)]
        with suppress(OSError, ValueError):
            return self.binary({"inputs": inputs}, encoded([1, 2])).status == 200
        return False

    @cached_property
    def has_statistics(self) -> bool:
        """True if the server counts inferences."""
        return self.get(f"/v2/models/{FP32}/stats").status == 200

    @cached_property
    def has_index(self) -> bool:
        """True if the server lists its models."""
        return self.post("/v2/repository/index", b"{}").status == 200

    @cached_property
    def has_untyped(self) -> bool:
        """True if the server reads JSON without a content type, as Triton's client sends it."""
        request = {"inputs": [tensor([1, 2], [1, 2])]}
        return self.infer(FP32, request, Content_Type=None).status == 200

    def has_model(self, name: str) -> bool:
        """True if a model is ready."""
        return self.get(f"/v2/models/{name}/ready").status == 200
