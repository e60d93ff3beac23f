"""Checks 1 to 16: health, metadata, paths."""

import json

from outrigger_testenv.conformance_oip.check import Check, rest, rpc
from outrigger_testenv.conformance_oip.http import compact
from outrigger_testenv.conformance_oip.server import (
    BINARY,
    FP32,
    INDEX,
    STATISTICS,
    UNREADY,
    Server,
)
from outrigger_testenv.oip.models import NEVER

LIVE, READY = "/v2/health/live", "/v2/health/ready"
ABSENT = "no-such-model"
NO_VERSION = "99"
NOT_FOUND = '404 {"error":"*"}'

# Calls of the failing model before its readiness is asked for.
_FAILURES = 100

_TENSOR = '[{"datatype":"FP32","name":"%s","shape":[-1,-1]}]'
_METADATA = (
    f'200 {{"inputs":{_TENSOR % "x"},"name":"{FP32}","outputs":{_TENSOR % "OUT_x"},'
    '"platform":"*"*}'
)

# Extensions that a probe shows to work or not.
_PROBED = {"binary_tensor_data": BINARY, "model_repository": INDEX, "statistics": STATISTICS}
# Further extensions of Triton, which this suite does not try.
_KNOWN = {
    "classification",
    "cuda_shared_memory",
    "generate",
    "logging",
    "model_configuration",
    "model_repository(unload_dependents)",
    "parameters",
    "schedule_policy",
    "sequence",
    "system_shared_memory",
    "trace",
}


def _model(name: str, rest_of_path: str = "") -> str:
    return f"/v2/models/{name}{rest_of_path}"


def _get(path: str):
    return lambda server: server.get(path).text()


def _unready(path: str):
    return lambda server: server.get(path, place=server.unready).text()


def _after_failures(server: Server) -> str:
    """Reports if the failing model is ready after it has failed often."""
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
    statuses = [server.infer("failing", body).status for _ in range(_FAILURES)]
    ready = server.get(_model("failing", "/ready")).status
    state = "ready" if ready == 200 else "not ready"
    return f"{state} ({ready}) after {_FAILURES} times {sorted(set(statuses))}"


def _extensions(server: Server) -> str:
    """Where the announced extensions are not those that work."""
    announced = set(server.get("/v2").json()["extensions"])
    wrong = [f"{each} is unknown" for each in sorted(announced - _KNOWN - set(_PROBED))]
    for name, part in _PROBED.items():
        works = server.lacks(part) is None
        if works != (name in announced):
            wrong.append(f"{name} {'works' if works else 'does not work'}, {name in announced=}")
    return ", ".join(wrong).replace("name in announced=", "announced: ") or "agrees"


def _versions(server: Server) -> str:
    """The versions of the metadata, each with the status of its readiness."""
    metadata = server.get(_model(FP32)).json()
    if "versions" not in metadata:
        return "absent"
    if not metadata["versions"]:
        return f"versions is {json.dumps(metadata['versions'])}"
    statuses = (
        f"{version}: {server.get(_model(FP32, f'/versions/{version}/ready')).status}"
        for version in metadata["versions"]
    )
    return ", ".join(statuses)


def _tensors(answer) -> str:
    """Metadata over gRPC in the form of REST."""
    return compact(
        {
            "name": answer.name,
            "platform": answer.platform,
            **{
                kind: [
                    {"name": each.name, "datatype": each.datatype, "shape": list(each.shape)}
                    for each in getattr(answer, kind)
                ]
                for kind in ("inputs", "outputs")
            },
        }
    )


def _metadata(name: str, version: str = ""):
    return lambda server: server.calls("ModelMetadata", _tensors, name=name, version=version)


CHECKS = [
    Check(
        1,
        "live is 200 while the server is up",
        [
            rest("live", "200 *", _get(LIVE)),
            rpc("ServerLive", "OK True", lambda s: s.calls("ServerLive", lambda a: a.live)),
        ],
    ),
    Check(
        2,
        "ready is 200 only if every model is ready",
        [
            rest("all ready", "200 *", _get(READY)),
            rest("one not ready", ("503 *", "400 *"), _unready(READY), needs=UNREADY),
            rpc("all ready", "OK True", lambda s: s.calls("ServerReady", lambda a: a.ready)),
            rpc(
                "one not ready",
                "OK False",
                lambda s: s.calls("ServerReady", lambda a: a.ready, s.unready),
                needs=UNREADY,
            ),
        ],
    ),
    Check(
        3,
        "live and ready have both `live` and `ready`",
        [
            rest("live", '200 {*"live":true*"ready":true*}', _get(LIVE)),
            rest("ready", '200 {*"live":true*"ready":true*}', _get(READY)),
        ],
    ),
    Check(
        4,
        "not ready is 503, and live stays 200",
        [
            rest("ready", "503 *", _unready(READY), needs=UNREADY),
            rest("live", "200 *", _unready(LIVE), needs=UNREADY),
            rest("model ready", "503 *", _unready(_model(NEVER, "/ready")), needs=UNREADY),
            rpc(
                "live",
                "OK True",
                lambda s: s.calls("ServerLive", lambda a: a.live, s.unready),
                needs=UNREADY,
            ),
        ],
    ),
    Check(
        5,
        "model ready is 200 with `name` and `ready`",
        [
            rest(
                "ready",
                f'200 {{*"name":"{FP32}"*"ready":true*}}',
                _get(_model(FP32, "/ready")),
            ),
            rpc(
                "ModelReady",
                "OK True",
                lambda s: s.calls("ModelReady", lambda a: a.ready, name=FP32),
            ),
        ],
    ),
    Check(
        6,
        "ready of an unknown model is 404",
        [rest("ready", NOT_FOUND, _get(_model(ABSENT, "/ready")))],
    ),
    Check(
        7,
        "a model whose runs all fail is not ready",
        [rest("ready", "not ready *", _after_failures)],
        last=True,
    ),
    Check(
        8,
        "GET /v2 has name, version, extensions",
        [
            rest("GET /v2", '200 {"extensions":[*],"name":"*","version":"*"}', _get("/v2")),
            rpc(
                "ServerMetadata",
                "OK * has [*'name', 'version']",
                lambda s: s.calls(
                    "ServerMetadata",
                    lambda a: f"{a.name} has {sorted(f.name for f, _ in a.ListFields())}",
                ),
            ),
        ],
    ),
    Check(
        9,
        "the extensions are those that work",
        [rest("extensions", "agrees", _extensions)],
    ),
    Check(
        10,
        "a trailing slash is served, not redirected",
        [rest("/v2/", "200 {*}", _get("/v2/")), rest("live", "200 *", _get(f"{LIVE}/"))],
    ),
    Check(
        11,
        "model metadata has name, platform, inputs and outputs with -1",
        [
            rest("metadata", _METADATA, _get(_model(FP32))),
            rpc(
                "ModelMetadata",
                _METADATA.replace("200", "OK").replace('"*}', '"}'),
                _metadata(FP32),
            ),
        ],
    ),
    Check(
        12,
        "`versions` lists the versions that serve, or is absent",
        [rest("versions", ("absent", "*: 200"), _versions)],
    ),
    Check(
        13,
        "metadata of an unknown model or version is 404",
        [
            rest("model", NOT_FOUND, _get(_model(ABSENT))),
            rest("version", NOT_FOUND, _get(_model(FP32, f"/versions/{NO_VERSION}"))),
            rpc("model", "NOT_FOUND: *", _metadata(ABSENT)),
            rpc("version", "NOT_FOUND: *", _metadata(FP32, NO_VERSION)),
        ],
    ),
    Check(
        14,
        "a version that is no number is 404",
        [rest("version", NOT_FOUND, _get(_model(FP32, "/versions/no-such-version")))],
    ),
    Check(
        15,
        "a wrong method is 405",
        [
            rest("POST live", '405 {"error":"*"}', lambda s: s.get(LIVE, "POST").text()),
            rest("GET infer", '405 {"error":"*"}', _get(_model(FP32, "/infer"))),
        ],
    ),
    Check(16, "an unknown path is 404", [rest("/v2/nothing", NOT_FOUND, _get("/v2/nothing"))]),
]
