"""Requests of the Open Inference Protocol over HTTP, also ones that no client would send."""

import json
import zlib

from outrigger_testenv.attack.wire import post_in_turn

PATH = "/v2/models/good/neighbour/infer"
_JSON_LENGTH = "Inference-Header-Content-Length"


def _request(body: bytes, **headers: object) -> bytes:
    lines = {"Host": "localhost", "Content-Length": len(body), "Connection": "close"}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {PATH} HTTP/1.1\r\n{text}\r\n".encode() + body


def _mixed(shape: list[int], behind: bytes, *, size: int, length: object = None) -> bytes:
    """A request with a binary tensor of this size, and with a length of the JSON that may lie."""
    tensor = {"name": "x", "datatype": "FP32", "shape": shape}
    tensor["parameters"] = {"binary_data_size": size}
    text = json.dumps({"inputs": [tensor]}).encode()
    headers = {_JSON_LENGTH: len(text) if length is None else length}
    return _request(text + behind, **headers)


def _plain(datatype: str, shape: str, data: str) -> bytes:
    tensor = f'{{"name":"x","datatype":"{datatype}","shape":{shape},"data":{data}}}'
    return _request(f'{{"inputs":[{tensor}]}}'.encode())


# Tensors whose shapes, sizes and headers lie.
_WRONG = [
    _plain("FP32", "[4294967296,4294967296]", "[1]"),
    _plain("FP32", "[4611686018427387904,4]", "[]"),
    _plain("INT8", "[9223372036854775807]", "[1]"),
    _plain("FP32", "[-1]", "[1]"),
    _plain("BYTES", "[1048576]", '["a"]'),
    _plain("FP32", "[1]", "[" * 4096),
    _plain("FP32", f"[{'1,' * 4096}1]", "[1]"),
    _mixed([1], b"\x00" * 4, size=2**63),
    _mixed([2**32, 2**32], b"", size=0),
    _mixed([1], b"\x00" * 8, size=4),
    *(_mixed([1], b"\x00" * 4, size=4, length=it) for it in (0, -1, "x", 2**31, 2**64, 10**6)),
    _request(b"\x78\x9c\x01", Content_Encoding="deflate"),
]


def wrong_bodies(address: str, seconds: float) -> None:
    """Requests with shapes that overflow, sizes that do not match, and headers that lie."""
    post_in_turn(address, _WRONG, rate=100, seconds=seconds, wait=0.05)


_INPUT = '{"inputs":[{"name":"x","datatype":"%s","shape":[%d],"data":['
# The kinds of bodies: their beginning, for the number of parts, the part, and their end.
_KINDS = {
    "numbers": (lambda count: _INPUT % ("FP64", count), "0,", "0]}]}"),
    "texts": (lambda count: _INPUT % ("BYTES", count), '"",', '""]}]}'),
    "objects": (lambda _: '{"inputs":[', "{},", "{}]}"),
    "outputs": (lambda _: '{"inputs":[],"outputs":[', '{"name":"y"},', '{"name":"y"}]}'),
}


def many(
    address: str, kind: str, size: int, every: float, seconds: float, *, compressed: bool = False
) -> None:
    """Requests of this size, most of which is of one kind, again and again on new connections."""
    first, part, last = _KINDS[kind]
    count = size // len(part)
    body = (first(count + 1) + part * count + last).encode()
    headers = {"x_request_timeout": "2s"}
    if compressed:
        body, headers["Content_Encoding"] = zlib.compress(body, 9), "deflate"
    requests = [_request(body, **headers)]
    post_in_turn(address, requests, rate=1 / every, seconds=seconds, wait=every)
