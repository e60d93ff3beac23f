"""The error of every bad request has its reason and its field, and the server continues."""

import pandas as pd
import pytest

from outrigger.v1 import prediction_pb2 as pb
from outrigger_testenv.client import request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.reference import reference_frames

MODEL = "requests/reference"


@pytest.fixture(scope="module")
def digest(serving, reference):
    return serving(reference, MODEL)


def good_request():
    users, treatments = reference_frames(1, 3)
    message = request({}, treatments, "key_value")
    message.user_features.features["user_feature_00"].number = float(users.iloc[0, 0])
    message.model.CopyFrom(selector(MODEL))
    return message


@pytest.fixture
def good():
    """A valid request, to be changed by the test."""
    return good_request()


def refused(client, message):
    with pytest.raises(OutriggerError) as caught:
        client.call(message)
    return caught.value


@pytest.fixture(autouse=True)
def still_serving(digest, client):
    """Checks after each test that the next valid request is answered."""
    yield
    assert client.call(good_request()).model.digest == digest


FEATURE = 'treatments[1].features["treatment_feature_03"]'


def test_a_missing_feature(client, good):
    del good.treatments[1].features["treatment_feature_03"]
    error = refused(client, good)
    assert error.reason == "FEATURE_MISSING"
    assert [violation.field for violation in error.violations] == [FEATURE]


def test_a_value_of_the_wrong_type(client, good):
    good.treatments[1].features["treatment_feature_03"].text = "secret"
    error = refused(client, good)
    assert error.reason == "FEATURE_TYPE"
    assert [violation.field for violation in error.violations] == [FEATURE]
    assert "secret" not in str(error) + str(error.violations)


def test_a_vector_where_a_number_belongs(client, good):
    good.treatments[1].features["treatment_feature_03"].numbers.values.extend([1, 2])
    assert refused(client, good).reason == "FEATURE_LENGTH"


def test_all_faults_of_a_request_are_reported(client, good):
    del good.treatments[0].features["treatment_feature_00"]
    good.treatments[1].features["treatment_feature_03"].text = "secret"
    good.treatments[2].features["treatment_feature_19"].number = float("nan")
    error = refused(client, good)
    assert error.reason == "FEATURE_MISSING"
    assert [violation.field for violation in error.violations] == [
        'treatments[0].features["treatment_feature_00"]',
        FEATURE,
        'treatments[2].features["treatment_feature_19"]',
    ]
    assert len({violation.description for violation in error.violations}) == 3


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite(client, good, value):
    good.treatments[1].features["treatment_feature_03"].number = value
    error = refused(client, good)
    assert error.reason == "FEATURE_NOT_FINITE"
    assert [violation.field for violation in error.violations] == [FEATURE]


def test_both_forms_at_once(client, good):
    good.treatment_table.count = 1
    assert refused(client, good).reason == "REQUEST_MALFORMED"


def test_a_table_whose_bytes_do_not_fit(client):
    _, treatments = reference_frames(1, 3)
    message = request({}, treatments)
    message.model.CopyFrom(selector(MODEL))
    message.treatment_table.numbers.values = message.treatment_table.numbers.values[:-1]
    assert refused(client, message).reason == "REQUEST_MALFORMED"


def test_more_treatments_than_allowed(client):
    _, treatments = reference_frames(1, 5001)
    message = request({}, treatments)
    message.model.CopyFrom(selector(MODEL))
    assert refused(client, message).reason == "TOO_MANY_TREATMENTS"


def test_a_message_larger_than_allowed(client, good):
    good.request_id = "x" * (65 << 20)
    assert refused(client, good).reason == "TOO_LARGE"


def test_a_batch_names_the_request_at_fault(client):
    users, treatments = reference_frames(3, 2)
    batch = next(client.encode(users, treatments, form="key_value"))
    batch.model.CopyFrom(selector(MODEL))
    del batch.requests[2].treatments[1].features["treatment_feature_03"]
    with pytest.raises(OutriggerError) as caught:
        client.call_batch(batch)
    assert [each.field for each in caught.value.violations] == [f"requests[2].{FEATURE}"]


def test_a_bad_treatment_can_be_left_out(client, good):
    del good.treatments[1].features["treatment_feature_03"]
    good.options.on_treatment_error = pb.ON_TREATMENT_ERROR_SKIP
    answer = client.call(good)
    assert list(answer.scores.indices) == [0, 2]
    assert [(each.index, each.reason) for each in answer.treatment_errors] == [
        (1, "FEATURE_MISSING")
    ]


@pytest.mark.parametrize(
    ("version", "reason"),
    [({"tag": "nowhere"}, "TAG_NOT_FOUND"), ({"digest": f"sha256:{'0' * 64}"}, "DIGEST_NOT_FOUND")],
)
def test_a_version_that_is_not_there(client, good, version, reason):
    good.model.CopyFrom(selector(MODEL, **version))
    assert refused(client, good).reason == reason


@pytest.mark.parametrize("name", ["", "UPPER", "../etc", "a//b", "host:5000/x", "a@sha256:0"])
def test_a_name_that_is_none(client, good, name):
    good.model.name = name
    assert refused(client, good).reason in ("REQUEST_MALFORMED", "MODEL_NOT_FOUND")


def test_features_the_model_does_not_name_are_counted_and_ignored(stack, client, good):
    def unknown():
        metrics = stack.serve.metrics().items()
        return sum(value for name, value in metrics if "unknown" in name and "feature" in name)

    before = unknown()
    good.treatments[0].features["colour"].text = "red"
    client.call(good)
    assert unknown() > before


def test_frames_with_a_missing_required_value_name_it(client):
    users, treatments = reference_frames(1, 2)
    treatments = pd.DataFrame(treatments)
    treatments.iloc[1, 3] = None
    with pytest.raises(OutriggerError) as caught:
        client.predict(MODEL, users, treatments)
    assert caught.value.reason == "FEATURE_MISSING"
    assert "treatment_feature_03" in caught.value.violations[0].field
