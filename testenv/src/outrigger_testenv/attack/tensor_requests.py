"""Requests of the Open Inference Protocol: wrong and large ones harm no other caller."""

from outrigger_testenv.attack import inference, tensor_bodies
from outrigger_testenv.attack.case import MIB
from outrigger_testenv.attack.listeners import Listener

_LISTENER = Listener(
    "oip",
    tensor_bodies.PATH,
    {
        "inputs": [
            {"name": "user", "datatype": "FP32", "shape": [1, 1], "data": [40]},
            {"name": "offer", "datatype": "FP32", "shape": [1, 2, 1], "data": [1, 2]},
        ]
    },
    lambda answer: answer["outputs"][0]["data"],
    [7.0, 7.0],
)

CASES = [
    _LISTENER.sent(
        "tensors-wrong",
        "tensors with shapes that overflow, contents that do not match, lengths that lie",
        inference.wrong_tensors,
    ),
    *(
        _LISTENER.sent(
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
    _LISTENER.sent(
        "tensors-bomb",
        "four callers, 32 MiB of empty inputs in 32 KiB of gzip",
        inference.many,
        count=4,
        kind="inputs",
        size=32 * MIB,
        every=2.0,
        compressed=True,
    ),
    _LISTENER.sent(
        "tensors-json-wrong",
        "tensors over HTTP with shapes that overflow, sizes and headers that lie",
        tensor_bodies.wrong_bodies,
    ),
    *(
        _LISTENER.sent(
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
    _LISTENER.sent(
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
