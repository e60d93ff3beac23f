"""ONNX models in `outrigger onnx`: pushed, checked, served, and restarted with their engine."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv import canaries, onnxfiles, onnxmodels, requests
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import tree_package
from outrigger_testenv.client import request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.features import TREATMENT, USER, Input, Metadata, vector
from outrigger_testenv.load import Load
from outrigger_testenv.onnxmodels import AGE, FEATURES
from outrigger_testenv.outage import assert_is_away
from outrigger_testenv.stack import Stack
from outrigger_testenv.supervisor import Supervisor

USERS = pd.DataFrame({"age": np.float32([20, 47.5, 80])})
PRICES = pd.DataFrame({"price": np.float32([-2, 0.5, 3])}, index=["a", "b", "c"])
TWO_TOWERS = Path(__file__).parent / "two_towers"
TIMEOUT = 120.0


def table():
    """Ages and prices of 2,000 customers, and whether each bought."""
    draw = np.random.default_rng(1)
    columns = np.column_stack([draw.integers(18, 80, 2000), draw.normal(0, 3, 2000)])
    bought = 0.05 * (columns[:, 0] - 40) + 0.1 * columns[:, 1] + draw.normal(0, 1, 2000) > 0
    return columns.astype("float32"), bought


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A classifier of scikit-learn over age and price."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(*table())
    return onnxmodels.classifier(model, FEATURES, tmp_path_factory.mktemp("onnx"))


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """Trees of XGBoost over the same customers."""
    import xgboost

    columns, bought = table()
    data = xgboost.DMatrix(columns, bought, feature_names=["age", "price"])
    booster = xgboost.train({"objective": "binary:logistic", "max_depth": 4}, data, 20)
    return tree_package(booster, FEATURES, tmp_path_factory.mktemp("trees"))


def engine_in(directory):
    return onnxmodels.OnnxEngine(directory, directory / "onnx.log")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """The engine for ONNX models."""
    running = engine_in(tmp_path_factory.mktemp("engine"))
    running.start()
    yield running
    running.process.kill()


@pytest.fixture(scope="module")
def stack(engine):
    """A control plane with the engines for ONNX models and for trees."""
    with Stack({"engines": {"onnx": engine.entry}}, engine=False) as running:
        yield running
        running.check()


@pytest.fixture
def own_engine(tmp_path):
    """An engine for one test."""
    running = engine_in(tmp_path / "engine")
    running.start()
    yield running
    running.process.kill()


@pytest.mark.parametrize("form", [requests.TABLE, requests.KEY_VALUE])
def test_scores_of_scikit_learn_equal_those_of_onnx_runtime(stack, package, form):
    digest = stack.push(package, "classifier")
    scores = stack.client().predict("classifier", USERS, PRICES, form=form)
    assert set(scores["digest"]) == {digest}
    expected = np.concatenate(package.score(USERS, PRICES))
    assert scores["score"].to_numpy("f4").tobytes() == expected.tobytes()


def test_scores_of_pytorch_equal_those_of_onnx_runtime(stack, tmp_path):
    inputs = (
        Input("user", USER, "float32", (vector("taste", 3, required=True),)),
        Input("treatment", TREATMENT, "float32", (vector("kind", 2, required=True),)),
    )
    model = (TWO_TOWERS / "model.onnx").read_bytes()
    package = onnxmodels.write(model, Metadata(inputs), tmp_path / "package")
    stack.push(package, "two-towers")
    own = json.loads((TWO_TOWERS / "scores.json").read_text())
    users = pd.DataFrame({"taste": [np.float32(row) for row in own["user"]]})
    kinds = [pd.DataFrame({"kind": [np.float32(row) for row in each]}) for each in own["treatment"]]
    scores = stack.client().predict("two-towers", users, kinds)["score"].to_numpy("f4")
    assert scores.tobytes() == np.concatenate(package.score(users, kinds)).tobytes()
    np.testing.assert_allclose(scores, np.concatenate(own["scores"]), rtol=1e-6)


def test_a_package_is_validated_inspected_and_explained(stack, package):
    done = run("validate", package.directory, env=onnxfiles.library())
    assert done.returncode == 0, done.stdout + done.stderr
    done = run("inspect", package.directory, "-o", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    tensors = {each["name"]: each["dtype"] for each in report["inputs"] + report["outputs"]}
    assert tensors == {"X": "float32", "label": "int64", "probabilities": "float32"}
    stack.push(package, "explained")
    message = request({"age": 20.0}, PRICES)
    message.model.CopyFrom(selector("explained"))
    rows, _ = stack.client().explain(message)
    assert rows["X"].tolist() == [[20, -2], [20, 0.5], [20, 3]]
    message.options.contributions = True
    with pytest.raises(OutriggerError) as refused:
        stack.client().explain(message)
    assert refused.value.reason == "CONTRIBUTIONS_UNSUPPORTED"
    assert "onnx" in stack.serve.run("models", "show", "explained").stdout


def run(*arguments, env=None):
    """Runs a command of the binary."""
    command = [outrigger(), *arguments]
    environment = {**os.environ, **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_the_end_of_the_process_is_the_outage_of_its_models_only(stack, engine, package, trees):
    stack.push(package, "killed")
    stack.push(trees, "beside")
    client = stack.client()
    before = client.predict("killed", USERS, PRICES)
    client.predict("beside", USERS, PRICES)
    engine.process.kill()
    with pytest.raises(OutriggerError) as refused:
        client.predict("killed", USERS, PRICES, timeout=0.5)
    # A client that ends its call itself has no reason.
    reason = refused.value.reason or refused.value.code.name
    client.predict("beside", USERS, PRICES)
    with ThreadPoolExecutor() as pool:
        # It waits until its model is loaded again.
        waiting = pool.submit(client.predict, "killed", USERS, PRICES)
        engine.start()
        assert waiting.result()["score"].tolist() == before["score"].tolist()
    assert reason in {"ENGINE_UNAVAILABLE", "MODEL_LOADING", "DEADLINE", "DEADLINE_EXCEEDED"}


@pytest.mark.parametrize(("end", "back"), [("kill", "start"), ("pause", "resume")])
def test_requests_to_a_process_that_stays_away_get_the_reason_long_before_their_deadlines(
    own_engine, package, end, back
):
    with Stack({"engines": {"onnx": own_engine.entry}}, engine=False) as stack:
        stack.push(package, "away")
        client = stack.client()
        client.predict("away", USERS, PRICES)
        getattr(own_engine.process, end)()
        try:
            assert_is_away(lambda: client.predict("away", USERS, PRICES, timeout=30))
        finally:
            getattr(own_engine.process, back)()
        client.wait_until(lambda: client.predict("away", USERS, PRICES, timeout=5) is not None)


@pytest.mark.parametrize(
    ("make", "age"), [(onnxmodels.ends_at_load, 30.0), (onnxmodels.ends_at_a_call, AGE)]
)
def test_a_model_that_ends_the_process_is_in_quarantine(own_engine, package, tmp_path, make, age):
    users = pd.DataFrame({"age": [age]})
    with Stack({"engines": {"onnx": own_engine.entry}}, engine=False) as stack:
        client = stack.client()
        stack.push(package, "neighbour")
        client.load("neighbour")
        stack.push(make(tmp_path / "package"), "killer")

        def is_quarantined():
            try:
                client.predict("killer", users, PRICES, timeout=15)
            except OutriggerError as error:
                return error.reason == "MODEL_QUARANTINED"
            return False

        with Supervisor(own_engine):
            stack.serve.process.wait_until(is_quarantined, timeout=TIMEOUT)
            client.predict("neighbour", USERS, PRICES)
        assert stack.serve.metrics()["outrigger_models_quarantined"] == 1


def outside(model, onnx):
    weights = onnx.numpy_helper.from_array(np.zeros(2, "f4"), "elsewhere")
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../../../etc/passwd")
    model.graph.initializer.append(weights)


def custom(model, onnx):
    model.graph.node.append(onnx.helper.make_node("Own", ["X"], ["y"], domain="com.example"))


@pytest.mark.parametrize(
    ("spoil", "message"), [(outside, "../../../etc/passwd"), (custom, "com.example")]
)
def test_a_model_that_reaches_out_of_its_package_is_refused(
    stack, package, tmp_path, spoil, message
):
    import onnx

    model = onnx.load(package.directory / onnxfiles.FILE)
    spoil(model, onnx)
    spoilt = onnxmodels.write(model.SerializeToString(), package.metadata, tmp_path / "package")
    name = spoil.__name__
    stack.push(spoilt, name)
    with pytest.raises(OutriggerError) as refused:
        stack.client().predict(name, USERS, PRICES)
    assert refused.value.reason == "IMAGE_INVALID"
    assert message in stack.serve.run("models", "why", name).stdout


@pytest.mark.parametrize("how", onnxmodels.BROKEN)
def test_a_broken_file_is_refused_for_good(stack, tmp_path, how):
    stack.push(onnxmodels.broken(how, tmp_path / "package"), f"broken-{how}")
    with pytest.raises(OutriggerError) as refused:
        stack.client().predict(f"broken-{how}", USERS, vectors())
    assert refused.value.reason == "IMAGE_INVALID", refused.value
    why = stack.serve.run("models", "why", f"broken-{how}")
    assert "until something changes" in why.stdout, why.stdout


def vectors():
    """A treatment of `onnxmodels.broken`."""
    return pd.DataFrame({"values": [np.float32([1, 2])]})


def test_values_that_a_model_refuses_are_the_caller_s_fault(stack, tmp_path):
    stack.push(onnxmodels.table(tmp_path / "package"), "table")
    client = stack.client()
    for _ in range(10):
        with pytest.raises(OutriggerError) as refused:
            client.predict("table", USERS, pd.DataFrame({"price": np.float32([9])}))
        assert refused.value.reason == "REQUEST_MALFORMED", refused.value
        assert "idx=9" in str(refused.value)
    scores = client.predict("table", USERS, pd.DataFrame({"price": np.float32([3])}))
    assert (scores["score"] == 3).all()


def test_calls_are_joined_by_the_batcher(own_engine, package):
    entry = {**own_engine.entry, "batcher": {"max_rows": 64, "max_delay": "20ms"}}
    with Stack({"engines": {"onnx": entry}}, engine=False) as stack:
        stack.push(package, "joined")
        client = stack.client()
        client.load("joined")
        ages = np.linspace(18, 80, 64, dtype="float32")
        users = [pd.DataFrame({"age": [age]}) for age in ages]
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda user: client.predict("joined", user, PRICES), users))
        for user, answer in zip(users, answers, strict=True):
            expected = np.concatenate(package.score(user, PRICES))
            np.testing.assert_allclose(answer["score"], expected, rtol=1e-6)
        metrics = stack.serve.metrics()
    runs = metrics['outrigger_batcher_run_calls_count{engine="onnx"}']
    calls = metrics['outrigger_batcher_run_calls_sum{engine="onnx"}']
    assert calls > runs > 0


@pytest.mark.usefixtures("needs_registry")
@pytest.mark.parametrize("live", ["onnx", "trees"])
def test_a_canary_with_one_arm_in_each_engine_is_promoted(
    own_engine, package, trees, tmp_path, live
):
    # The models are of different kinds, so their scores differ.
    signals = {**canaries.QUICK["signals"], "score_drift": {"off": True}}
    overrides = {
        "engines": {"onnx": own_engine.entry},
        "canary": {"defaults": {**canaries.QUICK, "signals": signals}},
    }
    versions = {"onnx": package, "trees": trees}
    draw = np.random.default_rng(1)
    messages = []
    for age in draw.integers(18, 80, 200):
        prices = pd.DataFrame({"price": draw.normal(0, 3, 3).astype("float32")})
        messages.append(request({"age": int(age)}, prices))
        messages[-1].model.CopyFrom(selector("arms"))
    with Stack(overrides, engine=False) as stack:
        first = stack.push(versions.pop(live), "arms")
        (other,) = versions.values()
        stack.client().load("arms")
        with Load(stack.serve.target, messages, tmp_path) as load:
            load.wait_for(first)
            canary = stack.push(other, "arms", "latest_canary")
            decisions = canaries.wait_for_decisions(stack.serve, "arms")
            report = load.stop()
    assert report.failed == 0, report.first_errors
    assert decisions[0]["outcome"] == "OUTCOME_PROMOTED", decisions[0]["reason"]
    assert decisions[0]["canary_digest"] == canary
