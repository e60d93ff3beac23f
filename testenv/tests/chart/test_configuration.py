"""The binary accepts the configuration that the chart renders, as the pod passes it."""

import socket
import subprocess

import pytest
import yaml

from outrigger_testenv.binary import outrigger
from outrigger_testenv.chart.cases import CASES, WITH_ENGINE
from outrigger_testenv.chart.pod import LocalPod
from outrigger_testenv.chart.render import render
from outrigger_testenv.stack import merge


def test_the_rendered_configuration_is_valid(case):
    with LocalPod(case.rendered) as pod:
        done = pod.run(case.rendered.container("outrigger"), "--check-config")
    assert (done.returncode, done.stdout.strip()) == (0, "the configuration is valid"), done.stderr


def test_a_value_that_the_binary_refuses_is_found():
    values = merge(CASES["minimal"].values, {"config": {"images": {"allowed": ["elsewhere/x y"]}}})
    with LocalPod(render(values)) as pod:
        done = pod.run(pod.rendered.container("outrigger"), "--check-config")
    assert done.returncode == 64
    assert "images.allowed" in done.stderr


def test_further_engines_stand_beside_the_pods_own():
    large = {"kind": "tfserving", "endpoint": "10.0.0.7:8500", "store_path": "/models"}
    models = [{"name": "churn", "engine": "large"}]
    config = {"engine": {"connections": 4}, "engines": {"large": large}, "models": models}
    rendered = render(merge(CASES["minimal"].values, {"config": config}))
    written = yaml.safe_load(rendered.config["outrigger.yaml"])
    own = {"kind": "tfserving", "endpoint": "unix:/run/outrigger/engine.sock", "connections": 4}
    assert "engine" not in written
    assert written["engines"] == {"default": own, "large": large}
    with LocalPod(rendered) as pod:
        done = pod.run(rendered.container("outrigger"), "--check-config")
    assert (done.returncode, done.stdout.strip()) == (0, "the configuration is valid"), done.stderr


@pytest.mark.parametrize(
    ("size", "usable"), [("20Gi", "18432MiB"), ("500Mi", "450MiB"), ("1.5Ti", "1415577MiB")]
)
def test_the_store_leaves_a_tenth_of_its_volume_free(size, usable):
    rendered = render(merge(CASES["minimal"].values, {"store": {"size": size}}))
    assert yaml.safe_load(rendered.config["outrigger.yaml"])["store"]["max_size"] == usable


@pytest.mark.parametrize(
    ("limit", "requested", "threads"),
    [
        ("2", None, 2),
        (3, "1", 3),
        ("1500m", "1", 2),
        ("250m", None, 1),
        (0.5, None, 1),
        ("16", "2", 16),
        (None, "2500m", 3),
        (None, 4, 4),
        (None, None, 1),
    ],
)
def test_threads_follow_the_cpu_limit_or_else_the_request(limit, requested, threads):
    resources = {"limits": {"cpu": limit}, "requests": {"cpu": requested}}
    values = {"resources": resources, "engine": {"resources": resources}}
    rendered = render(merge(CASES["minimal"].values, values))
    flags = flags_of(rendered)
    assert flags["tensorflow_intra_op_parallelism"] == str(threads)
    assert flags["tensorflow_inter_op_parallelism"] == str(threads)
    assert yaml.safe_load(rendered.config["outrigger.yaml"])["server"]["threads"] == threads


def test_threads_that_are_given_win_over_the_limit():
    values = {"engine": {"intraOpThreads": 1}, "config": {"server": {"threads": 7}}}
    rendered = render(merge(CASES["minimal"].values, values))
    flags = flags_of(rendered)
    assert flags["tensorflow_intra_op_parallelism"] == "1"
    assert flags["tensorflow_inter_op_parallelism"] == "2"
    assert yaml.safe_load(rendered.config["outrigger.yaml"])["server"]["threads"] == 7


@pytest.mark.parametrize(("calls", "threads"), [(None, "160"), (200, "232")])
def test_the_engine_takes_more_calls_than_the_control_plane_makes(calls, threads):
    values = {"config": {"engine": {"max_in_flight": calls} if calls else {}}}
    flags = flags_of(render(merge(CASES["minimal"].values, values)))
    assert flags["grpc_max_threads"] == threads


@pytest.mark.parametrize("case", WITH_ENGINE, ids=lambda case: case.name)
def test_the_engine_starts_with_an_empty_list_of_models(case):
    flags = flags_of(case.rendered)
    assert flags["model_config_file"] == "/etc/outrigger/config/models.config"
    assert case.rendered.config["models.config"].strip() == "model_config_list {}"


def test_registries_are_asked_through_the_proxy():
    variables = {
        each["name"]: each["value"]
        for each in CASES["everything"].rendered.container("outrigger")["env"]
    }
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(30)
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        asking = subprocess.Popen(
            [outrigger(), "inspect", "registry.example/team/churn:latest"],
            env={**variables, "HTTPS_PROXY": address},
            stderr=subprocess.DEVNULL,
        )
        try:
            connection, _ = proxy.accept()
            with connection:
                assert connection.recv(1000).startswith(b"CONNECT registry.example:443 ")
        finally:
            asking.kill()
            asking.wait()


def flags_of(rendered):
    arguments = rendered.container("engine")["args"]
    return dict(each.removeprefix("--").split("=", 1) for each in arguments)
