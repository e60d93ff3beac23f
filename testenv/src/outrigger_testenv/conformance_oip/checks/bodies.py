"""Checks 43 to 51: the body of a request over HTTP, and models that cannot answer."""

import json

from outrigger_testenv.conformance_oip import http
from outrigger_testenv.conformance_oip.check import Check, rest, rpc
from outrigger_testenv.conformance_oip.checks.health import ABSENT, NO_VERSION
from outrigger_testenv.conformance_oip.checks.request import REFUSED, calls
from outrigger_testenv.conformance_oip.http import JSON, deflated, gzipped
from outrigger_testenv.conformance_oip.rpc import infer, x
from outrigger_testenv.conformance_oip.server import FP32, UNREADY, Server
from outrigger_testenv.conformance_oip.tensors import tensor, told
from outrigger_testenv.oip.models import NEVER

_BODY = {"inputs": [tensor([1, 2], [1, 2])]}
_SENT = json.dumps(_BODY).encode()
_ONE = "200 OUT_x FP32 [1,2] [1,2]"
_NOT_FOUND = '404 *{"error":"*"}'
_PATH = f"/v2/models/{FP32}/infer"
# Past the limit of 64 MiB that a server should have unless it is told otherwise.
_TOO_LARGE = 66 << 20
_DEPTH, _DEEP = 100, 200_000
# Elements of a request that is worth a status 100.
_LARGE = 100_000
_LARGE_SEEN = 60


def _nested(depth: int):
    """A value in many lists where one number should be, and a good request after it."""

    def act(server: Server) -> str:
        data = b"[" * depth + b"1" + b"]" * depth
        start = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":'
        first = server.infer(FP32, start + data + b"}]}").text()
        return f"{first} and then {told(server.infer(FP32, _BODY))}"

    return act


def _posted(body: bytes, **headers: object):
    return lambda server: told(server.infer(FP32, body, **headers))


def _large(server: Server) -> str:
    return server.infer(FP32, _SENT[:-1] + b" " * _TOO_LARGE + b"}").text()


def _bomb(server: Server) -> str:
    """Less than 100 KB that become more than the limit."""
    body = gzipped(_SENT[:-1] + b" " * _TOO_LARGE + b"}")
    return server.infer(FP32, body, Content_Encoding="gzip").text()


def _chunked(server: Server) -> str:
    headers = {"Content-Type": JSON, "Transfer-Encoding": "chunked"}
    parts = [_SENT[at : at + 7] for at in range(0, len(_SENT), 7)]
    start = http.head("POST", _PATH, headers)
    return told(http.exchange(server.place.rest, start, http.chunks(parts)))


def _expecting(server: Server) -> str:
    body = json.dumps({"inputs": [tensor([1.0] * _LARGE, [1, _LARGE])]}).encode()
    headers = {"Content-Type": JSON, "Content-Length": len(body), "Expect": "100-continue"}
    start = http.head("POST", _PATH, headers)
    first, answer = http.exchange_expecting(server.place.rest, start, body)
    return f"{first}, then {told(answer)[:_LARGE_SEEN]}"


def _encoding(server: Server) -> str:
    answer = server.infer(FP32, _SENT, Content_Encoding="br")
    return answer.text("Accept-Encoding")


def _unready(server: Server) -> str:
    path = f"/v2/models/{NEVER}/infer"
    return server.post(path, _SENT, place=server.unready).text("Retry-After")


def _unready_call(server: Server) -> str:
    return server.answers(infer(NEVER, x([1, 2], data=[1, 2])), server.unready)


CHECKS = [
    Check(
        43,
        "malformed JSON and an empty body are refused",
        [
            rest("malformed", REFUSED, _posted(b'{"inputs":[')),
            rest("no object", REFUSED, _posted(b"[]")),
            rest("empty", REFUSED, _posted(b"")),
        ],
    ),
    Check(
        44,
        "deep nesting and bodies over 64 MiB are refused, and the server lives",
        [
            rest("100 lists", f"{REFUSED} and then {_ONE}", _nested(_DEPTH)),
            rest("66 MiB", ('413 {"error":"*"}', REFUSED), _large),
            rest("200,000 lists", f"{REFUSED} and then {_ONE}", _nested(_DEEP)),
        ],
        last=True,
    ),
    Check(
        45,
        "JSON without a content type, with a charset or as text is served or 415",
        [
            rest("no type", (_ONE, '415 {"error":"*"}'), _posted(_SENT, Content_Type=None)),
            rest("charset", _ONE, _posted(_SENT, Content_Type=f"{JSON}; charset=utf-8")),
            rest("text", (_ONE, '415 {"error":"*"}'), _posted(_SENT, Content_Type="text/plain")),
        ],
    ),
    Check(
        46,
        "bodies in gzip and deflate are served, within limits",
        [
            rest("gzip", _ONE, _posted(gzipped(_SENT), Content_Encoding="gzip")),
            rest("deflate", _ONE, _posted(deflated(_SENT), Content_Encoding="deflate")),
            rest("66 MiB in gzip", ('413 {"error":"*"}', REFUSED), _bomb),
        ],
    ),
    Check(
        47,
        "an unknown encoding is 415 with Accept-Encoding",
        [rest("br", '415 {"error":"*"} Accept-Encoding: *gzip*', _encoding)],
    ),
    Check(48, "a body in chunks", [rest("chunks of 7 bytes", _ONE, _chunked)]),
    Check(
        49,
        "Expect: 100-continue",
        [
            rest(
                "a large body",
                "HTTP/1.1 100 *, then 200 OUT_x FP32 [1,100000] *",
                _expecting,
            )
        ],
    ),
    Check(
        50,
        "an inference with an unknown model or version is 404",
        [
            rest("model", _NOT_FOUND, lambda s: s.infer(ABSENT, _BODY).text()),
            rest(
                "version",
                _NOT_FOUND,
                lambda s: s.infer(FP32, _BODY, f"/versions/{NO_VERSION}").text(),
            ),
            rpc("model", "NOT_FOUND: *", calls(x([1, 2], data=[1, 2]), model=ABSENT)),
            rpc("version", "NOT_FOUND: *", calls(x([1, 2], data=[1, 2]), model_version=NO_VERSION)),
        ],
    ),
    Check(
        51,
        "a model that is not ready is 503",
        [
            rest("infer", '503 {"error":"*"} Retry-After: *', _unready, needs=UNREADY),
            rpc("ModelInfer", "UNAVAILABLE: *", _unready_call, needs=UNREADY),
        ],
    ),
]
