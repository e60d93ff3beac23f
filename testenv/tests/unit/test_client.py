"""Client and load against a small fake control plane."""

from concurrent import futures

import grpc
import pandas as pd
import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from outrigger.v1 import prediction_pb2 as pb
from outrigger.v1 import prediction_pb2_grpc, validation_pb2, validation_pb2_grpc
from outrigger_testenv.client import Client, request, selector
from outrigger_testenv.errors import OutriggerError, Violation
from outrigger_testenv.load import Load

USERS = pd.DataFrame({"age": [20, 30]}, index=["a", "b"])
OFFERS = pd.DataFrame({"price": [1.0, 2.0]}, index=["x", "y"])


def packed(*details):
    status = status_pb2.Status(code=3, message="two features are wrong")
    for detail in details:
        status.details.append(Any())
        status.details[-1].Pack(detail)
    return status.SerializeToString()


class Scorer(prediction_pb2_grpc.PredictionServiceServicer):
    """A fake service that scores a treatment by its position plus the user's age. The model "bad"
    fails, and "best" ranks.
    """

    def Predict(self, asked, context):
        if asked.model.name == "bad":
            violation = error_details_pb2.BadRequest.FieldViolation(field="f", description="d")
            details = packed(
                error_details_pb2.ErrorInfo(reason="FEATURE_TYPE", domain="outrigger.dev"),
                error_details_pb2.BadRequest(field_violations=[violation]),
                error_details_pb2.RetryInfo(retry_delay=Duration(nanos=500_000_000)),
            )
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "two features are wrong")
        age = asked.user_features.features["age"].integer
        count = asked.treatment_table.count or len(asked.treatments)
        answer = pb.PredictResponse(model=pb.ServedModel(digest="sha256:1"))
        answer.scores.values.extend(at + age for at in range(count))
        return answer

    def BatchPredict(self, asked, context):
        answer = pb.BatchPredictResponse()
        for each in asked.requests:
            response = self.Predict(each, context)
            if asked.model.name == "best":
                response.scores.Clear()
                response.scores.values.append(9)
                response.scores.indices.append(1)
            if asked.model.name == "wide":
                response.scores.CopyFrom(pb.ScoreList(values=[10, 20, 11, 22], width=2))
                response.scores.score_column = 1
                mood = response.additional_outputs["mood"]
                mood.CopyFrom(pb.ScoreList(values=[2**24, 5], integers=[2**24 + 1, 5], width=2))
            response.additional_outputs["twice"].values.extend(
                2 * value for value in response.scores.values
            )
            response.additional_outputs["churn"].values.append(7)
            answer.responses.append(response)
        return answer


class Validator(validation_pb2_grpc.ValidationServiceServicer):
    """A fake service that reports its caller's token as the digest, and fails for "none.csv"."""

    def ValidateFile(self, asked, context):
        yield validation_pb2.ValidateFileResponse(progress={"fraction": 0.5, "rows": 1})
        if asked.input == "none.csv":
            info = error_details_pb2.ErrorInfo(reason="FILE_NOT_FOUND", domain="outrigger.dev")
            context.set_trailing_metadata((("grpc-status-details-bin", packed(info)),))
            context.abort(grpc.StatusCode.NOT_FOUND, "none.csv: there is no such file")
        token = dict(context.invocation_metadata()).get("authorization", "")
        report = {"rows": asked.max_errors, "digest": token, "passed": asked.overwrite}
        yield validation_pb2.ValidateFileResponse(report=report)


@pytest.fixture(scope="module")
def target():
    server = grpc.server(futures.ThreadPoolExecutor(4))
    prediction_pb2_grpc.add_PredictionServiceServicer_to_server(Scorer(), server)
    validation_pb2_grpc.add_ValidationServiceServicer_to_server(Validator(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


@pytest.mark.parametrize("expected", [[20, 21, 30, 32.5], [[20, 21], [30, 32.5]]])
def test_scores_are_compared_with_expected_ones(target, expected):
    with Client(target) as client:
        frame = client.validate_frame("m", USERS, OFFERS, expected, atol=0.5)
        assert frame["agrees"].tolist() == [True, True, True, False]
        assert frame["difference"].tolist() == [0, 0, 0, -1.5]
        assert client.validate_frame("m", USERS, OFFERS, expected, rtol=0.1)["agrees"].all()
        with pytest.raises(ValueError, match="3 expected scores for 4 scores"):
            client.validate_frame("m", USERS, OFFERS, [20, 21, 30])


@pytest.mark.parametrize("form", ["table", "key_value"])
def test_the_answer_has_a_row_a_score(target, form):
    with Client(target) as client:
        scores = client.predict("m", USERS, OFFERS, form=form, users_per_call=1)
    assert scores.to_dict("list") == {
        "user": ["a", "a", "b", "b"],
        "treatment": ["x", "y", "x", "y"],
        "score": [20, 21, 30, 31],
        "churn": [7] * 4,
        "twice": [40, 42, 60, 62],
        "digest": ["sha256:1"] * 4,
    }


def test_columns_and_exact_integers_are_read(target):
    with Client(target) as client:
        scores = client.predict("wide", USERS.iloc[:1], OFFERS)
    assert scores["score"].tolist() == [20, 22]
    assert [row.tolist() for row in scores["values"]] == [[10, 20], [11, 22]]
    assert [row.tolist() for row in scores["mood"]] == [[2**24 + 1, 5]] * 2


def test_indices_say_which_treatments_are_left(target):
    with Client(target) as client:
        scores = client.predict("best", USERS, [OFFERS, OFFERS])
    assert list(scores["treatment"]) == ["y", "y"]


def test_a_failure_has_its_reason_its_violations_and_its_delay(target):
    with Client(target) as client, pytest.raises(OutriggerError) as caught:
        client.call(pb.PredictRequest(model=selector("bad")))
    error = caught.value
    assert error.reason == "FEATURE_TYPE"
    assert error.code == grpc.StatusCode.INVALID_ARGUMENT
    assert error.violations == (Violation("f", "d"),)
    assert error.retry_after == 0.5
    assert str(error) == "FEATURE_TYPE: two features are wrong"


def test_a_refused_connection_has_no_reason():
    with Client("127.0.0.1:1") as client, pytest.raises(OutriggerError) as caught:
        client.call(pb.PredictRequest())
    assert caught.value.reason == ""
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE


def test_load_counts_answers_failures_and_wrong_scores(target, tmp_path):
    good = request({"age": 20}, OFFERS.iloc[:1])
    bad = pb.PredictRequest(model=selector("bad"))
    wrong = request({"age": 21}, OFFERS.iloc[:1])
    requests = [good, bad, good, wrong]
    with Load(target, requests, tmp_path, concurrency=2, expected={"sha256:1": 20}) as load:
        load.wait_for("sha256:1")
        with pytest.raises(TimeoutError):
            load.wait_for("sha256:2", timeout=0.5)
        report = load.stop()
    assert report.requests >= 8
    assert report.failed == report.errors["FEATURE_TYPE"] > 0
    assert report.first_errors[0] == "FEATURE_TYPE: two features are wrong"
    assert report.wrong > 0
    assert report.digests["sha256:1"] == report.requests - report.failed
    assert report.digests["sha256:1"] > report.wrong


def test_load_needs_requests(tmp_path):
    with pytest.raises(ValueError, match="no requests"):
        Load("127.0.0.1:1", [], tmp_path)


def test_a_file_is_scored_and_its_progress_reported(target):
    seen = []
    with Client(target) as client:
        how = {"token": "t", "overwrite": True, "max_errors": 7, "progress": seen.append}
        report = client.score_file("m", "a.csv", "b.csv", tag="latest", **how)
        with pytest.raises(OutriggerError) as failed:
            client.score_file("m", "none.csv")
    assert (report.rows, report.digest, report.passed) == (7, "Bearer t", True)
    assert [(each.fraction, each.rows) for each in seen] == [(0.5, 1)]
    assert failed.value.reason == "FILE_NOT_FOUND"
