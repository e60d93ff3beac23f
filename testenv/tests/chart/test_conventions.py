"""Conventions of sidecar charts that platform engineers expect, one test each."""

import pytest
import yaml

from outrigger_testenv.chart.cases import CASES, WITH_ENGINE
from outrigger_testenv.chart.render import containers, render
from outrigger_testenv.stack import merge

MINIMAL = CASES["minimal"].rendered
WITH_AN_ENGINE = pytest.mark.parametrize("case", WITH_ENGINE, ids=lambda case: case.name)
EVERYTHING = CASES["everything"].rendered
PLAIN = CASES["plain-container"].rendered
STATEFUL = CASES["stateful"].rendered
SECURED = CASES["secured"].rendered


def mounts(rendered, container):
    """A container's mounts: volume to path."""
    found = rendered.container(container)["volumeMounts"]
    return {each["name"]: each["mountPath"] for each in found}


def volume(rendered, name):
    return next(each for each in rendered.pod["volumes"] if each["name"] == name)


def environment(rendered, container):
    return {each["name"]: each["value"] for each in rendered.container(container).get("env", [])}


@WITH_AN_ENGINE
def test_startup_readiness_and_liveness_probes(case):
    container = case.rendered.container("outrigger")
    paths = {
        each: container[f"{each}Probe"]["httpGet"]["path"]
        for each in ("startup", "readiness", "liveness")
    }
    assert paths == {"startup": "/healthz", "readiness": "/readyz", "liveness": "/healthz"}
    assert "exec" in case.rendered.container("engine")["startupProbe"]


def test_prestop_drain():
    hook = PLAIN.container("engine")["lifecycle"]["preStop"]["exec"]["command"]
    assert "9902" in hook[-1], "it waits for the control plane, which closes that port last"
    assert "lifecycle" not in MINIMAL.container("engine"), "a native sidecar ends last by itself"


def test_the_grace_period_is_longer_than_the_drain(case):
    drain = {"delaySeconds": 5, "graceSeconds": 30, **case.values.get("drain", {})}
    assert case.rendered.pod["terminationGracePeriodSeconds"] > drain["graceSeconds"]
    config = case.rendered.config["outrigger.yaml"]
    assert f"shutdown_delay: {drain['delaySeconds']}s" in config
    assert f"shutdown_grace: {drain['graceSeconds']}s" in config


@pytest.mark.parametrize(
    ("switch", "version", "native"),
    [
        ("auto", "1.28", False),
        ("auto", "v1.29.4-eks-1", True),
        ("auto", "1.37", True),
        (True, "1.28", True),
        (False, "1.37", False),
    ],
)
def test_native_sidecar(switch, version, native):
    values = {"engine": {"nativeSidecar": switch}, "kubeVersionOverride": version}
    pod = render(merge(CASES["minimal"].values, values)).pod
    sidecars = {each["name"]: each.get("restartPolicy") for each in pod.get("initContainers", [])}
    assert sidecars == ({"engine": "Always"} if native else {})
    assert ("engine" in [each["name"] for each in pod["containers"]]) is not native


@WITH_AN_ENGINE
def test_the_engine_starts_directly_with_the_flags_it_needs(case):
    engine = case.rendered.container("engine")
    assert engine["command"] == ["timeout", "0", "tensorflow_model_server"]
    assert {
        "--port=0",
        "--grpc_socket_path=/run/outrigger/engine.sock",
        "--model_config_file_poll_wait_seconds=0",
        "--file_system_poll_wait_seconds=1",
        "--num_unload_threads=1",
        "--max_num_load_retries=0",
    } <= set(engine["args"])
    assert environment(case.rendered, "engine")["TF_ONEDNN_USE_SYSTEM_ALLOCATOR"] == "1"


@WITH_AN_ENGINE
def test_both_containers_see_the_socket_and_the_store_at_the_same_place(case):
    for shared in ("run", "store", "config"):
        assert mounts(case.rendered, "engine")[shared] == mounts(case.rendered, "outrigger")[shared]


def test_request_batching():
    arguments = EVERYTHING.container("engine")["args"]
    assert "--enable_batching=true" in arguments
    assert "--enable_per_model_batching_parameters=true" in arguments
    assert "--batching_parameters_file=/etc/outrigger/config/batching.config" in arguments
    assert "max_batch_size { value: 64 }" in EVERYTHING.config["batching.config"]
    engine = yaml.safe_load(EVERYTHING.config["outrigger.yaml"])["engines"]["default"]
    assert (engine["batching"], engine["max_batch_size"]) == (True, 64)
    assert not any("batching" in each for each in MINIMAL.container("engine")["args"])


def test_gpu():
    engine = CASES["gpu"].rendered.container("engine")
    assert engine["image"].endswith("-gpu")
    assert engine["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert CASES["gpu"].rendered.pod["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_the_store_on_an_empty_dir():
    assert volume(MINIMAL, "store")["emptyDir"] == {"sizeLimit": "20Gi"}


def test_the_store_on_an_ephemeral_volume():
    claim = volume(EVERYTHING, "store")["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert claim["resources"]["requests"]["storage"] == "100Gi"


def test_the_store_on_a_claim_of_every_pod():
    assert STATEFUL.workload["kind"] == "StatefulSet"
    service = STATEFUL.one("Service", STATEFUL.workload["spec"]["serviceName"])
    assert service["spec"]["clusterIP"] == "None"
    assert [each["name"] for each in STATEFUL.claims] == ["store"]


def test_the_store_on_a_claim_that_is_there():
    rendered = CASES["existing-claim"].rendered
    assert volume(rendered, "store")["persistentVolumeClaim"] == {"claimName": "models"}
    assert rendered.workload["spec"]["strategy"] == {"type": "Recreate"}


def test_a_baseline_of_models_on_an_image_volume():
    reference = volume(EVERYTHING, "baseline")["image"]["reference"]
    assert reference == "registry.example/baseline:2026-11"
    assert mounts(EVERYTHING, "outrigger")["baseline"] == "/baseline"


def test_the_identity_of_google_cloud():
    config = yaml.safe_load(EVERYTHING.config["outrigger.yaml"])
    assert config["images"]["identity"] == "gcp"
    assert "identity" not in yaml.safe_load(MINIMAL.config["outrigger.yaml"])["images"]
    # Only with the identity may pods call the metadata server.
    rendered = render(merge(CASES["minimal"].values, {"networkPolicy": {"enabled": True}}))
    assert len(rendered.one("NetworkPolicy")["spec"]["egress"]) == 2


def test_credential_helpers_come_from_an_init_container():
    copies, *_ = EVERYTHING.pod["initContainers"]
    assert copies["image"] == "registry.example/helpers:1.0"
    assert copies["command"] == ["cp", "/docker-credential-ecr-login", "/helpers/"]
    shared = mounts(EVERYTHING, "outrigger")["helpers"]
    assert copies["volumeMounts"] == [{"name": "helpers", "mountPath": "/helpers"}]
    path = environment(EVERYTHING, "outrigger")["PATH"].split(":")
    assert path == ["/usr/local/bin", shared], "that of the image comes first"
    assert "helpers" not in mounts(MINIMAL, "outrigger")
    assert "PATH" not in environment(MINIMAL, "outrigger")


def test_pod_disruption_budget():
    assert MINIMAL.one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert PLAIN.one("PodDisruptionBudget")["spec"]["maxUnavailable"] == "25%"
    assert CASES["old-cluster"].rendered.of_kind("PodDisruptionBudget") == []


def test_horizontal_pod_autoscaler():
    scaler = EVERYTHING.one("HorizontalPodAutoscaler")["spec"]
    assert {each["type"] for each in scaler["metrics"]} == {"Resource", "Pods"}
    assert scaler["metrics"][1]["pods"]["metric"]["name"] == "outrigger_requests_in_flight"
    assert "replicas" not in EVERYTHING.workload["spec"]
    assert STATEFUL.one("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["kind"] == (
        "StatefulSet"
    )


def test_network_policy():
    policy = EVERYTHING.one("NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    dns, registry, *metadata, collector, further = policy["egress"]
    assert {each["port"] for each in dns["ports"]} == {53}
    # The ports of registries, and of the proxy.
    assert [each["port"] for each in registry["ports"]] == [443, 5000, 3128]
    assert registry["to"] == [{"ipBlock": {"cidr": "192.0.2.0/24"}}]
    allowed = [(each["to"][0]["ipBlock"]["cidr"], each["ports"][0]["port"]) for each in metadata]
    assert allowed == [("169.254.169.254/32", 80), ("169.254.169.252/32", 988)]
    assert collector["ports"] == [{"port": 4317}]
    assert "namespaceSelector" in collector["to"][0]
    assert further["ports"] == [{"port": 8126}]
    assert MINIMAL.of_kind("NetworkPolicy") == []


@pytest.mark.parametrize(("openshift", "expected"), [(True, {53, 5353}), (False, {53})])
def test_network_policy_lets_names_be_resolved_where_the_resolvers_listen(openshift, expected):
    values = {"openshift": openshift, "networkPolicy": {"enabled": True}}
    rendered = render(merge(CASES["minimal"].values, values))
    ports = rendered.one("NetworkPolicy")["spec"]["egress"][0]["ports"]
    for protocol in ("UDP", "TCP"):
        assert {each["port"] for each in ports if each["protocol"] == protocol} == expected


def test_network_policy_lets_helm_test_in():
    test = EVERYTHING.of_kind("Pod")[0]["metadata"]["labels"]
    callers = EVERYTHING.one("NetworkPolicy")["spec"]["ingress"][0]["from"]
    assert any(
        each.get("podSelector", {}).get("matchLabels", {"": ""}).items() <= test.items()
        for each in callers
    )


def test_pod_monitor():
    endpoint = EVERYTHING.one("PodMonitor")["spec"]["podMetricsEndpoints"][0]
    ports = {each["name"] for each in EVERYTHING.container("outrigger")["ports"]}
    assert endpoint["port"] in ports


def test_service_monitor_finds_one_service():
    spec = PLAIN.one("ServiceMonitor")["spec"]
    wanted = spec["selector"]["matchLabels"].items()
    absent = [each["key"] for each in spec["selector"]["matchExpressions"]]
    found = [
        each
        for each in PLAIN.of_kind("Service")
        if wanted <= each["metadata"]["labels"].items()
        and not set(absent) & set(each["metadata"]["labels"])
    ]
    assert len(found) == 1
    assert spec["endpoints"][0]["port"] in {port["name"] for port in found[0]["spec"]["ports"]}


def test_prometheus_rule_with_alerts_left_out_and_labelled():
    alerts = EVERYTHING.one("PrometheusRule")["spec"]["groups"][0]["rules"]
    assert "OutriggerOverloaded" not in {each["alert"] for each in alerts}
    assert {each["labels"]["team"] for each in alerts} == {"growth"}
    assert MINIMAL.of_kind("PrometheusRule") == []


def test_grafana_dashboard():
    found = EVERYTHING.one("ConfigMap", "scores-dashboard")["metadata"]
    assert found["labels"]["grafana_dashboard"] == "1"
    assert found["annotations"] == {"grafana_folder": "Serving"}


@WITH_AN_ENGINE
def test_read_only_root(case):
    for name in ("outrigger", "engine"):
        assert case.rendered.container(name)["securityContext"]["readOnlyRootFilesystem"] is True


@WITH_AN_ENGINE
def test_only_written_volumes_are_mounted_writable(case):
    writable = {
        name: {
            each["name"]
            for each in case.rendered.container(name)["volumeMounts"]
            if not each.get("readOnly")
        }
        for name in ("outrigger", "engine")
    }
    assert writable["outrigger"] - {"more", "operator-token", "repository"} == {"run", "store"}
    assert writable["engine"] - {"more"} == {"run", "tmp"}


@WITH_AN_ENGINE
def test_the_token_for_changes_is_in_memory_where_the_engine_cannot_read_it(case):
    named = case.name == "secured"
    directory = mounts(case.rendered, "outrigger").get("operator-token")
    assert (directory is None) == named
    assert "operator-token" not in mounts(case.rendered, "engine")
    variables = environment(case.rendered, "outrigger")
    if named:
        assert "OUTRIGGER_AUTH_TOKEN_FILE" not in variables
        return
    assert volume(case.rendered, "operator-token")["emptyDir"]["medium"] == "Memory"
    assert variables["OUTRIGGER_AUTH_TOKEN_FILE"] == f"{directory}/token"
    shared = set(mounts(case.rendered, "engine").values())
    assert not any(f"{directory}/".startswith(f"{each}/") for each in shared)


def test_no_token_is_written_where_every_caller_may_change():
    values = {"config": {"auth": {"anonymous": ["predict", "read", "change"]}}}
    rendered = render(merge(CASES["minimal"].values, values))
    assert "operator-token" not in mounts(rendered, "outrigger")


def test_arbitrary_uid():
    context = CASES["openshift"].rendered.pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(context)
    assert MINIMAL.pod["securityContext"]["runAsUser"] == 65532


def test_digest_pinned_images():
    images = {each["name"]: each["image"] for each in containers(EVERYTHING.pod)}
    assert images["outrigger"] == f"registry.example/outrigger@sha256:{'1' * 64}"
    assert images["engine"] == f"docker.io/tensorflow/serving@sha256:{'3' * 64}"
    for hook in EVERYTHING.of_kind("Pod"):
        assert {each["image"] for each in containers(hook["spec"])} == {images["outrigger"]}


@pytest.mark.parametrize("tag", ["", "2.19.1"])
def test_a_digest_wins_over_the_tag(tag):
    pinned = {"tag": tag, "digest": f"sha256:{'4' * 64}"}
    values = {"image": pinned, "engine": {"image": pinned}}
    pod = render(merge(CASES["minimal"].values, values)).pod
    assert all(each["image"].endswith(f"@sha256:{'4' * 64}") for each in containers(pod))


def test_notes_name_the_images_that_are_not_pinned():
    both = "Pin image.digest and engine.image.digest"
    one = "Pin engine.image.digest"
    assert both in MINIMAL.notes
    digest = {"digest": f"sha256:{'4' * 64}"}
    assert one in render(merge(CASES["minimal"].values, {"image": digest})).notes
    assert "Pin " not in EVERYTHING.notes


def test_a_process_namespace_that_is_shared_is_noted():
    values = merge(CASES["minimal"].values, {"shareProcessNamespace": True})
    assert render(values).pod["shareProcessNamespace"] is True
    assert "can read the control plane's secrets" in render(values).notes


def test_no_image_is_latest(case):
    pods = [case.rendered.pod, *(each["spec"] for each in case.rendered.of_kind("Pod"))]
    for image in (each["image"] for pod in pods for each in containers(pod)):
        assert "@" in image or not image.endswith(":latest")
        assert ":" in image.rsplit("/", 1)[-1]


@pytest.mark.parametrize(
    ("rendered", "secret"), [(EVERYTHING, "registry-credentials"), (PLAIN, "pull")]
)
def test_existing_secrets(rendered, secret):
    mounted = volume(rendered, "registry")["secret"]
    assert mounted["secretName"] == secret
    assert mounted["items"] == [{"key": ".dockerconfigjson", "path": "config.json"}]
    place = mounts(rendered, "outrigger")["registry"]
    assert f"docker_config: {place}\n" in rendered.config["outrigger.yaml"]


def test_certificates_and_tokens_from_secrets():
    place = mounts(SECURED, "outrigger")
    config = yaml.safe_load(SECURED.config["outrigger.yaml"])
    assert volume(SECURED, "tls")["secret"]["secretName"] == "outrigger-tls"
    assert config["tls"]["certificate"] == f"{place['tls']}/tls.crt"
    assert config["tls"]["admin"] == "plain", "it is on loopback"
    assert config["tls"]["key"] == f"{place['tls']}/tls.key"
    authorities = volume(SECURED, "client-ca")["secret"]
    assert authorities["items"] == [{"key": "authorities.pem", "path": "ca.crt"}]
    assert config["tls"]["client_ca"] == f"{place['client-ca']}/ca.crt"
    assert volume(SECURED, "tokens")["secret"] == {"secretName": "outrigger-tokens"}
    assert config["auth"]["tokens"] == place["tokens"]


@pytest.mark.parametrize(("health", "scheme"), [("server", "HTTPS"), ("plain", None)])
def test_probes_and_scrapes_use_the_transport_of_the_health_port(health, scheme):
    rendered = render(merge(CASES["secured"].values, {"config": {"tls": {"health": health}}}))
    container = rendered.container("outrigger")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"].get("scheme") == scheme
    endpoint = rendered.one("PodMonitor")["spec"]["podMetricsEndpoints"][0]
    assert endpoint.get("scheme") == (scheme and scheme.lower())
    assert ("tlsConfig" in endpoint) == (scheme is not None)


def test_helm_test_sends_the_credentials_that_the_ports_require():
    first, second = (each["spec"]["containers"][0]["args"] for each in SECURED.of_kind("Pod"))
    for arguments in (first, second):
        assert {"--ca=/tls/ca.crt", "--token-file=/token/token"} <= set(arguments)
        assert {"--cert=/tls/tls.crt", "--key=/tls/tls.key"} <= set(arguments)
    assert any(each.startswith("--url=https://") for each in (*first, *second))


def test_changed_secrets_and_files_are_seen_without_a_restart(case):
    """A mount by subPath would never be updated."""
    for container in containers(case.rendered.pod):
        assert not any("subPath" in each for each in container.get("volumeMounts", []))


@pytest.mark.parametrize(
    ("rendered", "source", "key"),
    [(EVERYTHING, "configMap", "ca.crt"), (PLAIN, "secret", "bundle.pem")],
)
def test_ca_bundle(rendered, source, key):
    assert volume(rendered, "ca")[source]["items"] == [{"key": key, "path": "ca.crt"}]
    place = mounts(rendered, "outrigger")["ca"]
    assert f"ca_file: {place}/ca.crt\n" in rendered.config["outrigger.yaml"]


@pytest.mark.parametrize(
    ("rendered", "source"),
    [
        (EVERYTHING, {"secret": {"secretName": "cosign-keys"}}),
        (PLAIN, {"configMap": {"name": "cosign-keys"}}),
    ],
)
def test_signature_keys(rendered, source):
    assert volume(rendered, "keys") == {"name": "keys", **source}
    assert mounts(rendered, "outrigger")["keys"] == "/etc/outrigger/keys"


def test_signatures_name_keys_that_are_mounted():
    config = yaml.safe_load(EVERYTHING.config["outrigger.yaml"])
    keys = [key for rule in config["images"]["signatures"] for key in rule.get("keys", [])]
    place = mounts(EVERYTHING, "outrigger")["keys"]
    assert keys and all(key.startswith(f"{place}/") for key in keys)


def test_proxy():
    variables = environment(EVERYTHING, "outrigger")
    assert variables["HTTPS_PROXY"] == variables["HTTP_PROXY"] == "http://proxy.example:3128"
    assert variables["NO_PROXY"] == ".svc,10.0.0.0/8"
    assert set(environment(MINIMAL, "outrigger")) == {"OUTRIGGER_AUTH_TOKEN_FILE"}


def test_topology_spread(case):
    labels = case.rendered.workload["spec"]["template"]["metadata"]["labels"]
    for each in case.rendered.pod.get("topologySpreadConstraints", []):
        assert each["labelSelector"]["matchLabels"].items() <= labels.items()
    zones = {each["topologyKey"] for each in MINIMAL.pod["topologySpreadConstraints"]}
    assert zones == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}


def test_priority_class():
    assert EVERYTHING.pod["priorityClassName"] == "high"


def test_extra_environment_volumes_mounts_containers_and_arguments():
    pod = EVERYTHING.pod
    assert environment(EVERYTHING, "outrigger")["OUTRIGGER_LOG_LEVEL"] == "debug"
    assert environment(EVERYTHING, "engine")["TF_CPP_MIN_LOG_LEVEL"] == "1"
    assert EVERYTHING.container("outrigger")["envFrom"]
    assert mounts(EVERYTHING, "outrigger")["more"] == mounts(EVERYTHING, "engine")["more"]
    assert volume(EVERYTHING, "more") == {"name": "more", "emptyDir": {}}
    names = [each["name"] for each in pod["initContainers"]]
    assert names == ["credential-helpers", "before", "engine", "onnx"]
    assert [each["name"] for each in pod["containers"]] == ["outrigger", "helper"]
    extra = "--enable_serialization_as_tensor_content=true"
    assert EVERYTHING.container("engine")["args"][-1] == extra


def test_no_service_account_token_unless_asked_for():
    assert MINIMAL.pod["automountServiceAccountToken"] is False
    assert MINIMAL.one("ServiceAccount")["automountServiceAccountToken"] is False
    assert EVERYTHING.pod["automountServiceAccountToken"] is True
    assert CASES["old-cluster"].rendered.pod["serviceAccountName"] == "default"


def test_cluster_ip_by_default():
    assert MINIMAL.one("Service")["spec"]["type"] == "ClusterIP"
    assert PLAIN.one("Service", "demo-outrigger")["spec"]["type"] == "LoadBalancer"


@pytest.mark.parametrize(
    ("rendered", "spoken"),
    [(MINIMAL, ["kubernetes.io/h2c", "http", "http"]), (SECURED, ["https", "https", "https"])],
)
def test_a_service_names_the_protocols_of_its_ports(rendered, spoken):
    ports = {each["name"]: each for each in rendered.one("Service")["spec"]["ports"]}
    assert [ports[name]["appProtocol"] for name in ("grpc", "http", "health")] == spoken


def test_the_listener_for_changes_is_never_offered(case):
    assert "admin: 127.0.0.1:9901" in case.rendered.config["outrigger.yaml"]
    offered = [each["containerPort"] for each in case.rendered.container("outrigger")["ports"]]
    assert 9901 not in offered


def test_helm_test_asks_and_sends_a_request():
    hooks = {each["metadata"]["name"]: each for each in EVERYTHING.of_kind("Pod")}
    assert set(hooks) == {"scores-test-models", "scores-test-predict"}
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in hooks.values()} == {"test"}
    assert [each["metadata"]["name"] for each in MINIMAL.of_kind("Pod")] == [
        "demo-outrigger-test-models"
    ]


def test_notes_use_the_credentials_that_the_ports_require():
    assert 'curl -s -H "authorization: Bearer $TOKEN" --cacert ca.crt' in SECURED.notes
    assert "-H" not in MINIMAL.notes and "--cacert" not in MINIMAL.notes
    stricter = {"config": {"tls": {"http": "mutual"}, "auth": {"anonymous": []}}}
    notes = render(merge(CASES["secured"].values, stricter)).notes
    assert "--cert caller.crt --key caller.key" in notes
    assert "models list --token-file=/etc/outrigger/tokens/CALLER" in notes


def test_notes_explain_how_to_send_the_first_request(case):
    service = case.rendered.workload["metadata"]["name"]
    assert f"port-forward service/{service} 9080:" in case.rendered.notes
    assert "/v1/predict" in case.rendered.notes


def test_a_pod_for_tree_models_has_no_engine():
    trees = CASES["trees"].rendered
    assert [each["name"] for each in trees.pod["containers"]] == ["outrigger"]
    assert "initContainers" not in trees.pod
    assert "run" not in {each["name"] for each in trees.pod["volumes"]}
    assert set(trees.config) == {"outrigger.yaml"}
    assert trees.container("outrigger")["securityContext"]["readOnlyRootFilesystem"] is True
    writable = {"operator-token", "store"}
    mounted = trees.container("outrigger")["volumeMounts"]
    assert {each["name"] for each in mounted if not each.get("readOnly")} == writable


def test_a_pod_for_onnx_models_has_a_container_of_outriggers_image_that_shares_store_and_socket():
    onnx = CASES["onnx"].rendered
    engine, control = onnx.container("onnx"), onnx.container("outrigger")
    assert engine["image"] == control["image"]
    assert engine["restartPolicy"] == "Always"
    assert "--threads=2" in engine["args"]
    mounts = {each["name"]: each for each in engine["volumeMounts"]}
    assert mounts["store"]["readOnly"]
    assert {"run", "store"} <= {each["name"] for each in control["volumeMounts"]}
    entry = yaml.safe_load(onnx.config["outrigger.yaml"])["engines"]["onnx"]
    assert f"--socket={entry['endpoint'].removeprefix('unix:')}" in engine["args"]
    assert entry["batcher"] == {"max_rows": 64}
