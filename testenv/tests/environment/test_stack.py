"""Stage 1, environment: the processes run and support the protocols that callers use."""

import os
import re
import urllib.request

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc

from outrigger.v1 import prediction_pb2 as pb
from outrigger_testenv.client import channel_options, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.image import sandbox
from outrigger_testenv.processes import ProcessError

CORES = len(os.sched_getaffinity(0))
CGROUP = "/sys/fs/cgroup"


def test_every_part_runs(stack):
    assert all(process.running for process in stack.processes())


def test_the_control_plane_is_alive_and_ready(stack):
    assert stack.serve.get("/healthz")[0] == 200
    assert stack.serve.get("/readyz")[0] == 200


def test_grpc_health_is_serving(client):
    answer = health_pb2_grpc.HealthStub(client.channel).Check(
        health_pb2.HealthCheckRequest(), timeout=5
    )
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_shows_pythons_client_the_services(client):
    database = ProtoReflectionDescriptorDatabase(client.channel)
    services = set(database.get_services())
    assert {"outrigger.v1.PredictionService", "outrigger.v1.ModelService"} <= services
    file = database.FindFileContainingSymbol("outrigger.v1.PredictRequest")
    assert "treatment_table" in {
        field.name for message in file.message_type for field in message.field
    }


def test_metrics_can_be_scraped(stack):
    status, text = stack.serve.get("/metrics")
    assert status == 200
    assert "# TYPE outrigger_" in text
    assert any(name.startswith("outrigger_") for name in stack.serve.metrics())


def test_the_engine_speaks_tensorflow_serving(stack):
    endpoint = stack.engine.endpoint
    with grpc.insecure_channel(endpoint, channel_options(endpoint)) as channel:
        asked = get_model_status_pb2.GetModelStatusRequest()
        asked.model_spec.name = "nobody"
        with pytest.raises(grpc.RpcError) as caught:
            model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(asked, timeout=5)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_the_http_listener_lists_models(stack):
    with urllib.request.urlopen(f"{stack.serve.http}/v1/models", timeout=5) as answer:
        assert answer.status == 200


def test_an_unknown_model_is_refused_with_its_reason(client):
    with pytest.raises(OutriggerError) as caught:
        client.call(pb.PredictRequest(model=selector("nobody/knows")))
    assert caught.value.reason == "MODEL_NOT_FOUND"


def test_garbage_is_refused_and_the_server_goes_on(client):
    predict = client.channel.unary_unary("/outrigger.v1.PredictionService/Predict")
    with pytest.raises(grpc.RpcError) as caught:
        predict(b"\xff\xff\xff\xff", timeout=5)
    assert OutriggerError.from_rpc(caught.value).reason == "REQUEST_MALFORMED"
    assert client.models() is not None


def test_a_bad_configuration_fails_at_once_with_all_problems(own_stack):
    with pytest.raises(ProcessError, match=r"serve ended with 64(.|\n)*store.colour"):
        own_stack(overrides={"store": {"colour": "red"}})


@pytest.mark.needs("bwrap")
@pytest.mark.parametrize(
    ("quota", "setting", "threads"),
    [(None, 0, CORES), (1.5, 0, 1), (1.5, 3, 3)],
    ids=["no quota", "quota", "setting"],
)
def test_the_log_of_the_start_has_the_processors(own_stack, tmp_path, quota, setting, threads):
    if not sandbox.available():
        pytest.skip("namespaces cannot be created here")
    stack = own_stack(overrides={"server": {"threads": setting}}, start=False)
    process = stack.serve.process
    shown = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", cgroup(tmp_path, quota), CGROUP, "--"]
    process.command = [*map(str, shown), *process.command]
    stack.start()
    (line,) = (each for each in process.log.read_text().splitlines() if "processors of" in each)
    found = {name: logged(line, name) for name in ("cores", "quota", "threads")}
    assert found == {"cores": str(CORES), "quota": quota and str(quota), "threads": str(threads)}, (
        line
    )


def cgroup(directory, quota):
    """A directory with the files of a control group, of both versions, that has a quota in CPUs."""
    period = 100_000
    (directory / "cpu").mkdir()
    allowed = int(quota * period) if quota else None
    (directory / "cpu.max").write_text(f"{allowed or 'max'} {period}\n")
    (directory / "cpu" / "cpu.cfs_quota_us").write_text(f"{allowed or -1}\n")
    (directory / "cpu" / "cpu.cfs_period_us").write_text(f"{period}\n")
    return directory


def logged(line, name):
    """The value of a field of a line in the log; None if it has no such field."""
    found = re.search(rf"\b{name}\W+([\d.]+)", line)
    return found and found[1]


def test_an_official_engine_can_take_the_local_ones_place(monkeypatch, tmp_path):
    from outrigger_testenv.stack import ENGINE_ENV, Engine

    monkeypatch.setenv(ENGINE_ENV, "/opt/tensorflow_model_server")
    command = Engine(tmp_path / "engine", tmp_path / "log").process.command
    assert command[0] == "/opt/tensorflow_model_server"
    assert all(flag.startswith("--") and "=" in flag for flag in command[1:])
