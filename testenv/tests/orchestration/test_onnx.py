"""ONNX models in `outrigger onnx`: pushed, checked, served, and restarted with their engine."""

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv import onnxmodels
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.features import TREATMENT, USER, numeric
from outrigger_testenv.stack import Stack

FEATURES = (
    numeric("age", entity=USER, default=30),
    numeric("price", entity=TREATMENT, required=True),
)
USERS = pd.DataFrame({"age": np.float32([20, 47.5, 80])})
PRICES = pd.DataFrame({"price": np.float32([-2, 0.5, 3])}, index=["a", "b", "c"])


@pytest.fixture(scope="module")
def classifier():
    """A classifier of scikit-learn over age and price."""
    from sklearn.linear_model import LogisticRegression

    draw = np.random.default_rng(1)
    table = np.column_stack([draw.integers(18, 80, 2000), draw.normal(0, 3, 2000)])
    labels = 0.05 * (table[:, 0] - 40) + 0.1 * table[:, 1] + draw.normal(0, 1, 2000) > 0
    return LogisticRegression().fit(table.astype("f4"), labels)


@pytest.fixture(scope="module")
def package(classifier, tmp_path_factory):
    """The package of the classifier."""
    return onnxmodels.sklearn_package(classifier, FEATURES, tmp_path_factory.mktemp("onnx"))


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """The engine for ONNX models."""
    directory = tmp_path_factory.mktemp("engine")
    running = onnxmodels.OnnxEngine(directory, directory / "onnx.log")
    running.start()
    yield running
    running.process.kill()


@pytest.fixture(scope="module")
def stack(engine):
    """A control plane with the engines for ONNX models and for trees."""
    with Stack({"engines": {"onnx": engine.entry}}, engine=False) as running:
        yield running
        running.check()


def own_scores(package):
    """The scores of ONNX Runtime itself, a row for each user and price."""
    rows = [[age, price] for age in USERS["age"] for price in PRICES["price"]]
    outputs = onnxmodels.run(package, {"X": np.array(rows, "f4")})
    return outputs["probabilities"][:, 1]


def test_scores_equal_those_of_onnx_runtime(stack, package):
    digest = stack.push(package, "classifier")
    scores = stack.client().predict("classifier", USERS, PRICES)
    assert set(scores["digest"]) == {digest}
    assert scores["score"].to_numpy("f4").tobytes() == own_scores(package).tobytes()


def test_models_are_loaded_again_after_the_engine_was_killed(stack, engine, package):
    stack.push(package, "killed")
    client = stack.client()
    before = client.predict("killed", USERS, PRICES)
    engine.process.kill()
    engine.start()
    after = client.predict("killed", USERS, PRICES)
    assert after["score"].tolist() == before["score"].tolist()


def test_a_model_with_weights_outside_of_its_package_is_refused(stack, package, tmp_path):
    import onnx

    model = onnx.load(package.directory / onnxmodels.FILE)
    weights = onnx.numpy_helper.from_array(np.zeros(2, "f4"), "elsewhere")
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../../../etc/passwd")
    model.graph.initializer.append(weights)
    outside = onnxmodels.write(model.SerializeToString(), package.metadata, tmp_path / "outside")
    stack.push(outside, "outside")
    with pytest.raises(OutriggerError) as refused:
        stack.client().predict("outside", USERS, PRICES)
    assert refused.value.reason == "IMAGE_INVALID"
