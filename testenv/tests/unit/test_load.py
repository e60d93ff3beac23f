"""The load generator: one client that never retries, and a patient one."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from outrigger.v1 import prediction_pb2 as pb
from outrigger_testenv.load import Load

ANSWER = pb.PredictResponse(
    model=pb.ServedModel(digest="sha256:1"), scores=pb.ScoreList(values=[1])
)


@pytest.fixture
def target():
    """A server that refuses its first three requests."""
    calls = itertools.count()

    def predict(_request, context):
        if next(calls) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "later")
        return ANSWER

    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(
        predict, pb.PredictRequest.FromString, pb.PredictResponse.SerializeToString
    )
    service = grpc.method_handlers_generic_handler(
        "outrigger.v1.PredictionService", {"Predict": handler}
    )
    server.add_generic_rpc_handlers([service])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def report(target, directory, **options):
    with Load(target, [pb.PredictRequest()], directory, concurrency=1, **options) as load:
        load.wait_for("sha256:1")
        return load.stop()


def test_refused_requests_count_as_failed(target, tmp_path):
    seen = report(target, tmp_path)
    assert (seen.failed, seen.errors) == (3, {"UNAVAILABLE": 3})
    assert seen.repeated == {}


def test_a_patient_client_repeats_refused_requests(target, tmp_path):
    seen = report(target, tmp_path, patient=True, expected={"sha256:1": 2.0})
    assert (seen.failed, seen.repeated) == (0, {"UNAVAILABLE": 3})
    assert seen.wrong == seen.requests, "answers are checked as those of others are"


def test_requests_at_a_rate_have_a_course(target, tmp_path):
    seen = report(target, tmp_path, rate=200.0)
    assert len(seen.course) == seen.requests
    course = sorted(tuple(line) for line in seen.course)
    due = [line[0] for line in course]
    assert due == pytest.approx([at / 200 for at in range(len(course))])
    failed = [line for line in course if line[1] < 0]
    assert len(failed) == 3 and all(line[2:] == ("", False) for line in failed)
    answered = [line for line in course if line[1] >= 0]
    assert answered and all(line[2:] == ("sha256:1", False) for line in answered)
