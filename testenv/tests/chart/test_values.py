"""The values of both charts: each is commented and in the schema; and those of the chart of the
control plane: the binary has each setting.
"""

import re
import subprocess

import pytest
import yaml
from helm_python import HelmError

from outrigger_testenv.binary import outrigger, repository
from outrigger_testenv.chart.cases import CASES
from outrigger_testenv.chart.render import CHART, render
from outrigger_testenv.stack import merge

# Settings that the chart makes itself, so that its parts fit together.
OWN = {
    "server.grpc",
    "server.http",
    "server.health",
    "server.admin",
    "server.xgboost_serving",
    "server.oip",
    "server.shutdown_delay",
    "server.shutdown_grace",
    "tls.certificate",
    "tls.key",
    "tls.client_ca",
    "auth.tokens",
    "auth.token_file",
    "engine.endpoint",
    "engine.batching",
    "engine.max_batch_size",
    "engine.store_path",
    "store.path",
    "images.docker_config",
    "images.identity",
    "images.ca_file",
}
# Values that are objects of Kubernetes, whose keys it documents.
KUBERNETES = ("resources", "strategy", "probes", "podSecurityContext", "securityContext")
MINIMAL = CASES["minimal"].values


def default_values(chart):
    return yaml.safe_load((chart / "values.yaml").read_text())


def schema(chart=CHART):
    return yaml.safe_load((chart / "values.schema.json").read_text())


def described(node, definitions):
    """The paths of a schema's properties, separated by dots."""
    node = definitions[node["$ref"].rsplit("/", 1)[1]] if "$ref" in node else node
    for name, child in node.get("properties", {}).items():
        yield name
        yield from (f"{name}.{each}" for each in described(child, definitions))


def keys(values):
    for name, value in values.items():
        yield name
        if isinstance(value, dict):
            yield from (f"{name}.{each}" for each in keys(value))


def far_headers(headers):
    """Values with an engine elsewhere that is sent these headers."""
    far = {"kind": "oip", "endpoint": "https://models.example", "token_file": "/far/token"}
    return {"config": {"engines": {"far": {**far, "headers": headers}}}}


def test_every_value_is_commented(chart):
    lines = (chart / "values.yaml").read_text().splitlines()
    within_kubernetes = 0
    for at, line in enumerate(lines):
        key = re.match(r"( *)(\w+):( .+)?$", line)
        if not key or (within_kubernetes and len(key[1]) >= within_kubernetes):
            continue
        within_kubernetes = len(key[1]) + 2 if key[2] in KUBERNETES else 0
        commented = lines[at - 1].lstrip().startswith("#")
        opens = key[3] is None and key[2] not in KUBERNETES
        assert commented or opens, f"line {at + 1}: {line}"


def test_every_default_is_described_by_the_schema(chart):
    known = set(described(schema(chart), schema(chart)["$defs"]))
    free = [each for each in keys(default_values(chart)) if each not in known]
    # Objects of Kubernetes, and maps of labels, have keys that our schema does not list.
    roots = ("podSecurityContext.", "securityContext.", "engine.resources.", "resources.")
    roots += ("oipEngine.resources.", "onnx.resources.", "strategy.rollingUpdate.")
    roots += ("monitoring.dashboard.labels.",)
    assert [each for each in free if not each.startswith(roots)] == []


def test_every_object_of_the_schema_is_closed_or_kubernetes_own(chart):
    def open_objects(node, path):
        if node.get("type") == "object" and "properties" in node:
            if node.get("additionalProperties") is not False:
                yield path
            for name, child in node["properties"].items():
                yield from open_objects(child, f"{path}.{name}")
        if "items" in node:
            yield from open_objects(node["items"], f"{path}[]")

    whole = schema(chart)
    assert list(open_objects(whole, "")) == []
    for name, definition in whole["$defs"].items():
        assert list(open_objects(definition, name)) == []


def test_the_configuration_has_every_key_of_the_binary_but_those_the_chart_sets():
    dumped = subprocess.run(
        [outrigger(), "serve", "--set=images.repository=r.example/t", "--dump-config"],
        capture_output=True,
        text=True,
        check=True,
    )
    known = {each for each in keys(yaml.safe_load(dumped.stdout)) if "." in each}
    config = schema()["properties"]["config"]
    offered = {each for each in described(config, schema()["$defs"]) if "." in each}
    assert offered == known - OWN


def test_the_models_have_every_key_of_the_reference():
    text = (repository() / "docs" / "configuration.md").read_text()
    listed = re.findall(r"^\| `(\w+)` ", text.split("\n## models\n")[1], re.MULTILINE)
    models = schema()["properties"]["config"]["properties"]["models"]
    assert set(models["items"]["properties"]) == set(listed)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"imagee": {}}, "imagee"),
        ({"image": {"tag": "latest"}}, "/image/tag"),
        ({"engine": {"image": {"tag": "latest"}}}, "/engine/image/tag"),
        ({"image": {"digest": "sha256:short"}}, "/image/digest"),
        ({"engine": {"image": {"digest": "3" * 64}}}, "/engine/image/digest"),
        ({"engine": {"image": {"digest": f"sha256:{'3' * 63}"}}}, "/engine/image/digest"),
        ({"engine": {"image": {"digest": f"sha256:{'3' * 65}"}}}, "/engine/image/digest"),
        ({"engine": {"image": {"digest": f"sha256:{'A' * 64}"}}}, "/engine/image/digest"),
        ({"engine": {"image": {"digest": f"sha512:{'3' * 64}"}}}, "/engine/image/digest"),
        ({"config": {"server": {"grpc": "0.0.0.0:1"}}}, "grpc"),
        ({"config": {"models": [{"name": "Upper"}]}}, "/config/models/0/name"),
        ({"config": {"engines": {"large": {"endpoint": "h:1"}}}}, "/config/engines/large"),
        ({"config": {"engines": {"default": {"kind": "tfserving"}}}}, "propertyName 'default'"),
        ({"engine": {"nativeSidecar": "yes"}}, "nativeSidecar"),
        ({"store": {"size": "20GB"}}, "/store/size"),
        ({"replicaCount": "two"}, "replicaCount"),
        ({"podDisruptionBudget": {"maxUnavailable": "101%"}}, "/podDisruptionBudget"),
        ({"probes": {"liveness": {"successThreshold": 2}}}, "/probes/liveness/successThreshold"),
        ({"upgrade": {"replace": "scores"}}, "/upgrade/replace"),
        ({"store": {"size": "0.0Gi"}}, "/store/size"),
        ({"store": {"storageClassName": "Fast"}}, "/store/storageClassName"),
        ({"store": {"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]}}, "/store/accessModes"),
        ({"serviceAccount": {"name": "a b"}}, "/serviceAccount/name"),
        ({"priorityClassName": "High"}, "/priorityClassName"),
        ({"podLabels": {"team": "a b"}}, "/podLabels/team"),
        ({"commonLabels": {"a b": "team"}}, "invalid propertyName 'a b'"),
        ({"service": {"type": "ExternalName"}}, "/service/type"),
        ({"config": {"tls": {"grpc": "maybe"}}}, "/config/tls/grpc"),
        ({"config": {"auth": {"callers": {"ci": ["read"]}}}}, "/config/auth/callers"),
        ({"baseline": {"reference": "r.example/b:latest"}}, "/baseline/reference"),
        ({"monitoring": {"rules": {"disabled": ["Absent"]}}}, "/monitoring/rules/disabled/0"),
    ],
)
def test_the_schema_refuses(values, complaint):
    with pytest.raises(HelmError, match=re.escape(complaint)):
        render(merge(MINIMAL, values))


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"image": {"repository": ""}}, "image.repository"),
        ({"config": {"images": {"repository": ""}}}, "config.images.repository"),
        ({"store": {"type": "existingClaim"}}, "store.existingClaim"),
        ({"store": {"type": "existingClaim", "existingClaim": "c"}}, "one owner"),
        ({"engine": {"batching": {"allowedSizes": [8, 16]}}}, "allowedSizes"),
        (
            {"engine": {"batching": {"enabled": True, "maxBatchSize": 63}}},
            "must be at least config.server.max_users, 64",
        ),
        (
            {
                "engine": {"batching": {"enabled": True}},
                "config": {"server": {"max_users": 65}},
            },
            "must be at least config.server.max_users, 65",
        ),
        (
            {"onnx": {"enabled": True}, "engine": {"nativeSidecar": False}},
            "onnx.enabled: needs native sidecars",
        ),
        ({"registry": {"useImagePullSecret": True}}, "imagePullSecrets"),
        (
            {"registry": {"caBundle": {"existingSecret": "a", "existingConfigMap": "b"}}},
            "registry.caBundle",
        ),
        ({"config": {"tls": {"grpc": "mutual"}}}, "tls.existingSecret"),
        (
            {"tls": {"existingSecret": "t"}, "config": {"tls": {"health": "mutual"}}},
            "config.tls.health",
        ),
        (
            {"registry": {"signatureKeys": {"existingSecret": "a", "existingConfigMap": "b"}}},
            "registry.signatureKeys",
        ),
        ({"autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": 0}}, "autoscaling"),
        (
            {"autoscaling": {"enabled": True, "minReplicas": 11}},
            "autoscaling.minReplicas: 11 is more than maxReplicas, 10",
        ),
        ({"strategy": {"rollingUpdate": {"maxSurge": 0}}}, "strategy.rollingUpdate: with maxSurge"),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "0%"}}},
            "strategy.rollingUpdate: with maxSurge",
        ),
        ({"service": {"grpcPort": 9080}}, "service: the ports grpc and http are both 9080"),
        (
            {"service": {"oipPort": 9902}, "oip": {"enabled": True}},
            "service: the ports health and oip are both 9902",
        ),
        (
            {"resources": {"limits": {"memory": "128Mi"}}},
            "resources.limits.memory: 128Mi is less than the request, 256Mi",
        ),
        (
            {"engine": {"resources": {"limits": {"cpu": "1500m"}}}},
            "engine.resources.limits.cpu: 1500m is less than the request, 2",
        ),
        (
            {"onnx": {"enabled": True, "resources": {"requests": {"memory": "5Gi"}}}},
            "onnx.resources.limits.memory: 4Gi is less than the request, 5Gi",
        ),
        (
            {"commonLabels": {"app.kubernetes.io/name": "x"}},
            "commonLabels: the chart sets app.kubernetes.io/name",
        ),
        (
            {"podLabels": {"app.kubernetes.io/instance": "x"}},
            "podLabels: the chart sets app.kubernetes.io/instance",
        ),
        (
            {"extraEnv": [{"name": "OUTRIGGER_AUTH_TOKEN_FILE", "value": "/x"}]},
            "the container outrigger has two of the variable OUTRIGGER_AUTH_TOKEN_FILE",
        ),
        (
            {"extraVolumes": [{"name": "store", "emptyDir": {}}]},
            "the pod has two of the volume store",
        ),
        ({"extraContainers": [{"name": "engine"}]}, "the pod has two of the container engine"),
        (
            {"engine": {"extraVolumeMounts": [{"name": "more", "mountPath": "/more"}]}},
            "the container engine mounts the volume more, which the pod does not have",
        ),
        (
            {"extraVolumeMounts": [{"name": "tmp", "mountPath": "/run/outrigger"}]},
            "the container outrigger has two of the mount /run/outrigger",
        ),
        (
            far_headers({"Authorization": "Bearer x"}),
            "config.engines.far.headers.Authorization: a credential would stand in a ConfigMap;",
        ),
        (
            far_headers({"x-api-key": "x"}),
            "config.engines.far.headers.x-api-key: a credential would stand",
        ),
        (
            far_headers({"x-team": "basic eA=="}),
            "config.engines.far.headers.x-team: a credential would stand",
        ),
        (
            {"proxy": {"https": "http://user:password@proxy:3128"}},
            "proxy.https: the password of the URL would stand in an object that is no Secret; put",
        ),
        (
            {"extraEnv": [{"name": "HTTP_PROXY", "value": "http://:p@proxy"}]},
            "extraEnv[HTTP_PROXY].value: the password of the URL",
        ),
        (
            {"engine": {"extraEnv": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}]}},
            "engine.extraEnv[AWS_SECRET_ACCESS_KEY]: a credential would stand in the pod; use",
        ),
        ({"fullnameOverride": "a.b"}, "fullnameOverride: a.b is no name of a Service"),
        ({"fullnameOverride": "1a"}, "fullnameOverride: 1a is no name of a Service"),
        ({"nameOverride": "A"}, "fullnameOverride: demo-A is no name of a Service"),
        ({"registry": {"identity": "aws"}}, "/registry/identity"),
        ({"drain": {"delaySeconds": 30, "graceSeconds": 30}}, "drain.graceSeconds"),
        (
            {"monitoring": {"rules": {"disabled": ["OutriggerAbsent", "OutriggerOverload"]}}},
            "monitoring.rules.disabled: there is no alert OutriggerOverload, only OutriggerAbsent,",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused(values, complaint):
    with pytest.raises(HelmError, match=re.escape(complaint)):
        render(merge(MINIMAL, values))


def test_what_is_no_credential_is_taken():
    reference = {"secretKeyRef": {"name": "proxy", "key": "url"}}
    values = {
        **far_headers({"x-team": "offers"}),
        "proxy": {"http": "http://proxy:3128"},
        "extraEnv": [
            {"name": "HTTPS_PROXY", "valueFrom": reference},
            {"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": reference},
            {"name": "OUTRIGGER_TRACES_ENDPOINT", "value": "http://collector:4317/a:b@c"},
        ],
    }
    render(merge(MINIMAL, values))


def test_the_charts_version_is_the_binarys(chart):
    stated = yaml.safe_load((chart / "Chart.yaml").read_text())
    cargo = (repository() / "Cargo.toml").read_text()
    assert stated["appVersion"] == re.search(r'^version = "(.+)"', cargo, re.MULTILINE)[1]
