"""The chart of batch jobs: a Job whose pods divide the work, and end as its policies expect."""

import re

import pytest
import yaml
from helm_python import HelmError

from outrigger_testenv.binary import repository
from outrigger_testenv.chart.cases import BATCH_CASES
from outrigger_testenv.chart.render import BATCH_CHART, render
from outrigger_testenv.stack import merge

MINIMAL = BATCH_CASES["batch-minimal"]
EVERYTHING = BATCH_CASES["batch-everything"]
STORE = BATCH_CASES["batch-store"]


@pytest.fixture(params=list(BATCH_CASES))
def case(request):
    """Each case of values in turn."""
    return BATCH_CASES[request.param]


def rendered(changes):
    return render(merge(MINIMAL.values, changes), BATCH_CHART)


def job_file(of):
    return yaml.safe_load(of.config["job.yaml"])


def policy_ports(rule):
    return [each["port"] for each in rule["ports"]]


def test_each_pod_is_a_worker_of_the_job(case):
    spec = case.rendered.workload["spec"]
    workers = case.values.get("workers", 2)
    assert (spec["completionMode"], spec["completions"]) == ("Indexed", workers)
    assert spec["parallelism"] == workers
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    container = case.rendered.container("batch")
    assert container["command"] == ["outrigger"]
    file, worker = container["args"][2:4]
    assert container["args"][:2] == ["batch", "run"]
    assert worker == f"--worker=$(JOB_COMPLETION_INDEX)/{workers}"
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert mounts[file.rsplit("/", 1)[0]] == "config"


def test_the_job_file_has_the_keys_that_are_given():
    assert job_file(MINIMAL.rendered) == MINIMAL.values["job"]
    authorities = {"ca": "/etc/outrigger/ca/ca.crt"}
    assert job_file(EVERYTHING.rendered) == EVERYTHING.values["job"] | authorities
    retried = {"job": {"input": None, "model": None, "retry": "/output/scored"}}
    assert set(job_file(rendered(retried))) == {"retry", "output", "hosts"}


def test_the_schema_has_every_key_of_a_job():
    page = (repository() / "docs" / "batch.md").read_text().split("\n## Keys\n")[1]
    table = re.findall(r"^\| (`[^|]*) \|", page.split("\n## ")[0], re.MULTILINE)
    listed = {key for cell in table for key in re.findall(r"`(\w+)`", cell)}
    schema = yaml.safe_load((BATCH_CHART / "values.schema.json").read_text())
    assert set(schema["properties"]["job"]["properties"]) == listed


def test_a_failure_is_judged_by_its_exit_code_and_by_who_caused_it(case):
    spec = case.rendered.workload["spec"]
    stopped, disrupted = spec["podFailurePolicy"]["rules"]
    codes = {"containerName": "batch", "operator": "In", "values": [64, 65]}
    assert (stopped["action"], stopped["onExitCodes"]) == ("FailJob", codes)
    conditions = [{"type": "DisruptionTarget", "status": "True"}]
    assert (disrupted["action"], disrupted["onPodConditions"]) == ("Ignore", conditions)
    assert spec["backoffLimitPerIndex"] == case.values.get("backoffLimitPerIndex", 6)


def test_the_job_succeeds_when_one_worker_says_so_if_the_cluster_knows_that(case):
    expected = {"rules": [{"succeededCount": 1}]} if case.oldest != "1.29" else None
    assert case.rendered.workload["spec"].get("successPolicy") == expected
    assert ("success policies" in case.rendered.notes) == (expected is None)


def test_limits_of_the_job_are_there_if_they_are_given():
    limits = ("maxFailedIndexes", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
    assert not set(limits) & set(MINIMAL.rendered.workload["spec"])
    found = [EVERYTHING.rendered.workload["spec"][each] for each in limits]
    assert found == [2, 2592000, 604800]
    at_once = rendered({"maxFailedIndexes": 0, "ttlSecondsAfterFinished": 0}).workload["spec"]
    assert (at_once["maxFailedIndexes"], at_once["ttlSecondsAfterFinished"]) == (0, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"job": {"batch_size": 7}},
        {"workers": 3},
        {"backoffLimitPerIndex": 1},
        {"resources": {"limits": {"memory": "2Gi"}}},
        {"image": {"tag": "0.2.0"}},
        {"input": {"existingClaim": "other"}},
    ],
)
def test_a_change_of_what_a_job_cannot_change_makes_another_job(changes):
    changed = rendered(changes)
    (before, after) = (each.workload["metadata"]["name"] for each in (MINIMAL.rendered, changed))
    assert before != after
    assert before.rsplit("-", 1)[0] == after.rsplit("-", 1)[0]
    assert [each["metadata"]["name"] for each in changed.of_kind("ConfigMap")] == [after]


def test_other_changes_are_of_the_same_job():
    changes = {"suspend": True, "ttlSecondsAfterFinished": 60, "maxFailedIndexes": 1}
    changed = rendered(changes | {"networkPolicy": {"enabled": True}})
    assert changed.workload["metadata"]["name"] == MINIMAL.rendered.workload["metadata"]["name"]
    assert changed.workload["spec"]["suspend"] is True


def test_pods_have_no_rights_in_the_cluster(case):
    assert case.rendered.one("ServiceAccount")["automountServiceAccountToken"] is False
    assert case.rendered.pod["automountServiceAccountToken"] is False
    kinds = {each["kind"] for each in case.rendered.objects}
    monitored = {"PodMonitor", "PrometheusRule"}
    assert kinds <= {"ConfigMap", "Job", "NetworkPolicy", "ServiceAccount"} | monitored


def test_the_root_is_read_only_and_only_the_output_is_written(case):
    container = case.rendered.container("batch")
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    written = {
        each["name"] for each in container["volumeMounts"] if not each.get("readOnly", False)
    }
    assert written <= {"tmp", "output"}


def test_an_arbitrary_user_on_openshift():
    context = EVERYTHING.rendered.pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(context)


def test_an_object_store_needs_no_volumes():
    volumes = [each["name"] for each in STORE.rendered.pod["volumes"]]
    assert volumes == ["config", "tmp"]
    annotations = STORE.rendered.one("ServiceAccount")["metadata"]["annotations"]
    assert "eks.amazonaws.com/role-arn" in annotations
    credentials = EVERYTHING.rendered.container("batch")["envFrom"][0]
    assert credentials == {"secretRef": {"name": "store"}}


def test_network_policy():
    assert MINIMAL.rendered.of_kind("NetworkPolicy") == []
    policy = EVERYTHING.rendered.one("NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    dns, hosts, stores, further = policy["egress"]
    assert policy_ports(dns) == [53, 53, 5353, 5353]
    assert policy_ports(hosts) == [443, 80, 8001]
    assert "namespaceSelector" in hosts["to"][0]
    assert policy_ports(stores) == [443, 9000]
    assert policy_ports(further) == [8126]
    # The pods are called by no other, unless it is admitted.
    scrapers, callers = policy["ingress"]
    assert policy_ports(scrapers) == ["metrics"]
    assert "namespaceSelector" in scrapers["from"][0]
    assert policy_ports(callers) == [9901]
    store = STORE.rendered.one("NetworkPolicy")["spec"]
    assert "ingress" not in store
    assert [policy_ports(each) for each in store["egress"]] == [[53, 53], [443], [443]]
    other = rendered({"networkPolicy": {"enabled": True, "hostPorts": [9001]}})
    dns, hosts = other.one("NetworkPolicy")["spec"]["egress"]
    assert policy_ports(hosts) == [9001]


@pytest.mark.parametrize(
    ("changes", "listen", "kinds"),
    [
        ({"job": {"listen": "127.0.0.1:9920"}}, "127.0.0.1:9920", set()),
        ({"job": {"listen": "[::]:80"}}, "[::]:80", set()),
        ({"monitoring": {"enabled": True}}, "0.0.0.0:9910", {"PodMonitor"}),
        ({"monitoring": {"rules": {"enabled": True}}}, "0.0.0.0:9910", {"PrometheusRule"}),
    ],
)
def test_the_listener_has_a_port_of_the_container(changes, listen, kinds):
    made = rendered(merge(changes, {"networkPolicy": {"enabled": True}}))
    assert job_file(made)["listen"] == listen
    port = int(listen.rsplit(":", 1)[1])
    assert made.container("batch")["ports"] == [{"name": "metrics", "containerPort": port}]
    assert {each["kind"] for each in made.objects} & {"PodMonitor", "PrometheusRule"} == kinds
    # Without a monitor the listener is for `kubectl port-forward`, which needs no rule.
    expected = [{"ports": [{"port": "metrics"}]}] if "monitoring" in changes else None
    assert made.one("NetworkPolicy")["spec"].get("ingress") == expected


def test_there_is_no_listener_by_default():
    assert "listen" not in job_file(MINIMAL.rendered)
    assert "ports" not in MINIMAL.rendered.container("batch")


def test_the_monitor_finds_the_pods_and_their_port():
    made = EVERYTHING.rendered
    monitor = made.one("PodMonitor")["spec"]
    labels = made.workload["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["namespaceSelector"] == {"matchNames": ["models"]}
    (endpoint,) = monitor["podMetricsEndpoints"]
    (port,) = made.container("batch")["ports"]
    assert (endpoint["port"], port["containerPort"]) == (port["name"], 9911)
    assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "30s")
    assert endpoint["relabelings"][1]["targetLabel"] == "cluster"
    assert made.one("PodMonitor")["metadata"]["labels"]["release"] == "prometheus"


def test_alerts_that_are_left_out_and_labelled():
    alerts = EVERYTHING.rendered.one("PrometheusRule")["spec"]["groups"][0]["rules"]
    assert "OutriggerBatchStalled" not in {each["alert"] for each in alerts}
    assert {each["labels"]["team"] for each in alerts} == {"growth"}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"jobb": {}}, "jobb"),
        ({"job": {"modell": "m"}}, "modell"),
        ({"job": {"batch_size": 0}}, "/job/batch_size"),
        ({"job": {"memory": "512 megabytes"}}, "/job/memory"),
        ({"workers": 0}, "/workers"),
        ({"image": {"tag": "latest"}}, "/image/tag"),
        ({"suspend": "yes"}, "/suspend"),
        ({"ttlSecondsAfterFinished": -1}, "/ttlSecondsAfterFinished"),
        ({"image": {"repository": ""}}, "image.repository is required"),
        ({"job": {"input": None}}, "job.input is required"),
        ({"job": {"output": None}}, "job.output is required"),
        ({"job": {"model": None}}, "job.model is required"),
        ({"job": {"hosts": None}}, "job.hosts is required"),
        ({"output": {"existingClaim": ""}}, "job.output: no volume is mounted at /output/scored"),
        ({"job": {"output": "/outputs"}}, "job.output: no volume is mounted at /outputs"),
        ({"job": {"output": "scored"}}, "job.output: no volume is mounted at scored"),
        ({"job": {"listen": "9910"}}, "/job/listen"),
        ({"job": {"listen": "0.0.0.0:0"}}, "/job/listen"),
        ({"job": {"listen": "127.0.0.1:9910"}, "monitoring": {"enabled": True}}, "no scraper"),
        ({"job": {"listen": "[::1]:9910"}, "monitoring": {"enabled": True}}, "no scraper"),
        ({"monitoring": {"rules": {"disabled": ["Stalled"]}}}, "/monitoring/rules/disabled"),
        ({"ca": {"existingSecret": "a", "existingConfigMap": "b"}}, "not both"),
        (
            {"job": {"hosts": [{"endpoint": "https://a", "headers": {"authorization": "x"}}]}},
            "job.hosts[0].headers.authorization: a credential would stand in a ConfigMap; put",
        ),
        ({"job": {"hosts": "https://user:p@a"}}, "job.hosts: the password of the URL would stand"),
        ({"extraArgs": ["--host=http://u:p@a"]}, "extraArgs[0]: the password of the URL"),
        (
            {"extraEnv": [{"name": "AWS_SESSION_TOKEN", "value": "x"}]},
            "extraEnv[AWS_SESSION_TOKEN]: a credential would stand in the pod; use valueFrom",
        ),
        ({"maxFailedIndexes": 3}, "maxFailedIndexes: 3 is more than workers, 2"),
        ({"job": {"memory": "1GiB"}}, "resources.limits.memory: a worker needs job.memory, 1GiB"),
        ({"resources": {"limits": {"memory": "767Mi"}}}, "job.memory, 512MiB, and a half more"),
        ({"resources": {"limits": {"memory": 800000000}}}, "job.memory, 512MiB, and a half more"),
        (
            {"job": {"memory": "64MiB"}, "resources": {"limits": {"memory": "191Mi"}}},
            "at least 128Mi",
        ),
    ],
)
def test_values_at_fault_are_refused(changes, complaint):
    with pytest.raises(HelmError, match=re.escape(complaint)):
        rendered(changes)


def test_a_limit_of_memory_that_a_worker_keeps_is_taken():
    for memory, limit in [
        ("2 GB", "3G"),
        ("0.5GiB", "0.75Gi"),
        ("64MiB", "192Mi"),
        ("64MiB", None),
    ]:
        rendered({"job": {"memory": memory}, "resources": {"limits": {"memory": limit}}})


def test_a_job_with_engines_of_its_own_has_no_hosts():
    own = {"job": {"hosts": None, "model": {"package": "/input/churn"}}}
    made = rendered(merge(own, {"networkPolicy": {"enabled": True}}))
    assert "hosts" not in job_file(made)
    assert len(made.one("NetworkPolicy")["spec"]["egress"]) == 1, "it calls nobody but DNS"


def test_a_job_with_language_models_names_no_model():
    limits = {"requests_per_minute": 60, "tokens_per_minute": 9000, "tokens_in_flight": 500}
    job = {"model": None, "protocol": "openai", **limits}
    file = job_file(rendered({"job": job}))
    assert "model" not in file
    assert file["protocol"] == "openai" and limits.items() <= file.items()


def test_an_output_may_be_on_a_volume_of_ones_own():
    own = {
        "job": {"output": "/scores/today"},
        "extraVolumes": [{"name": "scores", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "scores", "mountPath": "/scores"}],
    }
    assert job_file(rendered(own))["output"] == "/scores/today"
