"""Stage 1, environment: the HTTP interface is as its OpenAPI document describes it."""

import json
import urllib.request

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error, positive_data_acceptance

from outrigger_testenv import variants
from outrigger_testenv.binary import repository

MODEL = "described"
TIMEOUT = "x-request-timeout"
# The same cases at every run: a new failure is that of a change.
DRAWN = settings(
    max_examples=50,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def document(stack):
    """The document that the server sends."""
    with urllib.request.urlopen(f"{stack.serve.http}/openapi.json", timeout=5) as answer:
        assert answer.headers["content-type"] == "application/json"
        return json.load(answer)


@pytest.fixture(scope="module")
def operations(document):
    """The operations by id."""
    schema = schemathesis.openapi.from_dict(document)
    found = [result.ok() for result in schema.get_all_operations()]
    return {operation.definition.raw["operationId"]: operation for operation in found}


@pytest.fixture(scope="module")
def served(serving, tmp_path_factory):
    """A model that is served, which requires the feature `price` of treatments."""
    return serving(variants.tiny(tmp_path_factory.mktemp("tiny"), 0.5), MODEL)


def exercise(operation, mode, check):
    """Calls `check` with cases of an operation."""

    @DRAWN
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case):
        check(case)

    run()


def test_the_document_is_the_committed_one(document):
    assert document == json.loads((repository() / "docs" / "openapi.json").read_text())


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("predict", GenerationMode.POSITIVE),
        ("predict", GenerationMode.NEGATIVE),
        ("getModel", GenerationMode.POSITIVE),
        ("getModel", GenerationMode.NEGATIVE),
        # Without parameters of a certain form they cannot be called wrongly.
        ("listModels", GenerationMode.POSITIVE),
        ("getDocument", GenerationMode.POSITIVE),
    ],
)
def test_every_response_is_as_described(stack, operations, served, name, mode):
    def check(case):
        # A request of the right form is refused too: for a model that is not there, or features
        # that the model does not have.
        excluded = [positive_data_acceptance]
        if TIMEOUT in (case.headers or {}):
            # A timeout of 0 is answered with DEADLINE, whose status is 504.
            excluded.append(not_a_server_error)
        case.call_and_validate(stack.serve.http, excluded_checks=excluded)

    exercise(operations[name], mode, check)


def test_predictions_of_a_served_model_are_as_described(stack, operations, served):
    seen = set()

    def check(case):
        case.body["model"] = {"name": MODEL}
        for treatment in case.body.get("treatments") or []:
            treatment["features"] = {"price": 1.5}
        if case.body.get("options"):
            case.body["options"].pop("outputs", None)
        case.headers.pop(TIMEOUT, None)
        response = case.call_and_validate(stack.serve.http)
        assert response.json()["model"]["digest"] == served
        seen.add(len(response.json()["scores"]) > 0)

    exercise(operations["predict"], GenerationMode.POSITIVE, check)
    assert seen == {False, True}


def test_a_served_model_is_as_described(stack, operations, served):
    case = operations["getModel"].Case(path_parameters={"name": MODEL})
    response = case.call_and_validate(stack.serve.http)
    assert [version["digest"] for version in response.json()["versions"]] == [served]
