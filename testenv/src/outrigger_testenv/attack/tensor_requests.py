"""Requests of the Open Inference Protocol: wrong and large ones harm no other caller."""

from collections.abc import Callable
from typing import Any

import grpc

from outrigger_testenv.attack import inference, tensor_bodies
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import MIB, Case
from outrigger_testenv.attack.requests import sent
from outrigger_testenv.attack.scene import Scene

_LISTENER = "oip"
_ANSWER = 10.0
# ServerReadyResponse.ready
_READY = b"\x08\x01"


def _answers(scene: Scene) -> str:
    """A new caller of the listener is answered, and so are those of the others. Raises Broken."""
    with grpc.insecure_channel(scene.address(_LISTENER)) as channel:
        try:
            found = channel.unary_unary(inference.READY)(b"", timeout=_ANSWER)
        except grpc.RpcError as error:
            raise Broken(f"a new caller of {_LISTENER}: {error.code()}") from None
    if found != _READY:
        raise Broken(f"a new caller of {_LISTENER} gets {found!r}")
    scene.check_answers()
    return "others are served"


def _sent(name: str, about: str, function: Callable[..., Any], **arguments: Any) -> Case:
    return sent(name, about, function, listener=_LISTENER, check=_answers, **arguments)


CASES = [
    _sent(
        "tensors-wrong",
        "tensors with shapes that overflow, contents that do not match, lengths that lie",
        inference.wrong_tensors,
    ),
    *(
        _sent(
            f"tensors-{kind}",
            f"four callers, 32 MiB of {about}",
            inference.many,
            count=4,
            kind=kind,
            size=32 * MIB,
            every=2.0,
        )
        for kind, about in [
            ("inputs", "empty inputs"),
            ("sizes", "dimensions of one input"),
            ("integers", "typed integers of a byte"),
            ("texts", "empty texts"),
            ("contents", "raw contents"),
        ]
    ),
    _sent(
        "tensors-json-wrong",
        "tensors over HTTP with shapes that overflow, sizes and headers that lie",
        tensor_bodies.wrong_bodies,
    ),
    *(
        _sent(
            f"tensors-json-{kind}",
            f"two callers, 16 MiB of JSON: {about}",
            tensor_bodies.many,
            count=2,
            kind=kind,
            size=16 * MIB,
            every=1.0,
        )
        for kind, about in [
            ("numbers", "8 million numbers"),
            ("texts", "5 million empty texts"),
            ("objects", "empty inputs"),
            ("outputs", "names of outputs"),
        ]
    ),
    _sent(
        "tensors-json-bomb",
        "four callers, 32 MiB of numbers in JSON in 32 KiB of deflate",
        tensor_bodies.many,
        count=4,
        kind="numbers",
        size=32 * MIB,
        every=2.0,
        compressed=True,
    ),
]
