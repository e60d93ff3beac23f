"""The interface of XGBoost Serving: its clients change the address."""

import json
import shutil
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest
import scipy.sparse
import xgboost

from outrigger_testenv import machines
from outrigger_testenv.builder import machine_package
from outrigger_testenv.features import JOINED, TREATMENT, Input, sparse_list
from outrigger_testenv.processes import free_ports
from outrigger_testenv.xgboost_serving import (
    ALPHAFM,
    PREDICT,
    SOFTMAX,
    XgboostServing,
    write_trees,
)

COLUMNS = 40
TREES, MACHINE, CLASSES = "ads/trees", "ads/machine", "ads/classes"
# Ids that the machine knows, and one that it does not.
WORDS = [*range(COLUMNS, COLUMNS + 5), 2**63 + 9, 99]


def sparse_input(name):
    feature = sparse_list(name, 50, entity=TREATMENT, default=[])
    return Input(name, JOINED, "int64", (feature,), f"{name}_lengths", f"{name}_weights")


INPUTS = tuple(map(sparse_input, (machines.XGBOOST_FEATURES, machines.FM_FEATURES)))


@pytest.fixture(scope="module")
def booster():
    draw = np.random.default_rng(1)
    table = scipy.sparse.random(2000, COLUMNS, 0.3, "csr", "f4", draw, draw.standard_normal)
    labels = np.asarray(table.sum(axis=1)).ravel() > 0
    data = xgboost.DMatrix(table, labels)
    return xgboost.train({"objective": "binary:logistic", "max_depth": 4}, data, 20)


@pytest.fixture(scope="module")
def rows():
    """Rows of both inputs. Some ids are no columns; one row is empty."""
    draw = np.random.default_rng(3)

    def row(ids):
        return [(int(id), float(np.float32(draw.normal()))) for id in ids]

    trees = [row(draw.permutation(COLUMNS + 5)[:12]) for _ in range(30)]
    words = [row(draw.permutation(WORDS)[:3]) for _ in range(30)]
    return [*trees, []], [*words, []]


@pytest.fixture
def served(own_stack, booster, tmp_path):
    """A stack with the listener: trees in a directory of versions, and two machines as images."""
    versions = tmp_path / "versions"
    write_trees(booster, versions / "7")
    (port,) = free_ports(1)
    stack = own_stack(
        engine=False,
        models=[{"name": TREES, "directory": str(versions), "versions": {"latest": 2}}],
        overrides={
            "server": {"xgboost_serving": f"127.0.0.1:{port}"},
            "auth": {"xgboost_serving": ["change"]},
            "images": {"directory_poll_interval": "200ms"},
        },
    )
    packages = {}
    for name, classes in ((MACHINE, 1), (CLASSES, 3)):
        machine = machines.draw(booster, [*range(COLUMNS + 5), 2**63 + 9], classes, 8, seed=2)
        package = machine_package(booster, machine, INPUTS, tmp_path / name)
        stack.push(package, name)
        packages[name] = package
    with XgboostServing(f"127.0.0.1:{port}") as client:
        yield stack, client, packages, versions


def table(rows):
    """Rows of trees as XGBoost's matrix: ids of no column are left out."""
    present = [[(id, score) for id, score in row if id < COLUMNS] for row in rows]
    offsets = np.cumsum([0, *map(len, present)])
    ids = [id for row in present for id, _ in row]
    scores = np.array([score for row in present for _, score in row], "f4")
    return xgboost.DMatrix(scipy.sparse.csr_matrix((scores, ids, offsets), (len(rows), COLUMNS)))


def tensors(name, rows):
    ids = np.array([id for row in rows for id, _ in row], "uint64").view("int64")
    scores = np.array([score for row in rows for _, score in row], "f4")
    lengths = np.array([len(row) for row in rows], "int64")
    return {name: ids, f"{name}_weights": scores, f"{name}_lengths": lengths}


def post(stack, path, document):
    address = stack.serve.config["server"]["xgboost_serving"]
    body = json.dumps(document).encode()
    with urllib.request.urlopen(f"http://{address}{path}", body, timeout=30) as answer:
        return json.load(answer)["outputs"]


def document(**inputs):
    def row(entries):
        ids, scores = [id for id, _ in entries], [score for _, score in entries]
        return {"feature_score": {"id": ids, "score": scores}}

    return {name: [row(each) for each in rows] for name, rows in inputs.items()}


def test_trees_have_the_scores_and_leaves_of_xgboost(served, booster, rows):
    stack, client, _, _ = served
    of_trees, _ = rows
    matrix, inputs = table(of_trees), {"xgboost_features": of_trees}
    expected = {
        "value": booster.predict(matrix),
        "margin": booster.predict(matrix, output_margin=True),
        "index": booster.predict(matrix, pred_leaf=True).ravel(),
    }
    for option_mask, (key, values) in enumerate(expected.items()):
        answer = client.predict(PREDICT, TREES, inputs, option_mask=option_mask)
        assert (answer.key, answer.version) == (key, 7)
        np.testing.assert_allclose(answer.values, values, rtol=0, atol=1e-6)
        asked = {**document(**inputs), "option_mask": option_mask}
        found = post(stack, f"/v1/models/{TREES}:predict", asked)
        np.testing.assert_allclose(found, values, rtol=0, atol=1e-6)
    first = booster.predict(matrix, pred_leaf=True, iteration_range=(0, 7)).ravel()
    answer = client.predict(PREDICT, TREES, inputs, option_mask=2, ntree_limit=7)
    np.testing.assert_array_equal(answer.values, first)
    asked = {**document(**inputs), "option_mask": 2, "ntree_limit": 7}
    np.testing.assert_array_equal(post(stack, f"/v1/models/{TREES}:predict", asked), first)
    margins = client.predict(PREDICT, TREES, inputs, option_mask=1).values.astype("f4")
    np.testing.assert_array_equal(margins, expected["margin"])


@pytest.mark.parametrize(
    ("name", "method", "verb"),
    [(MACHINE, ALPHAFM, "predict_alphafm"), (CLASSES, SOFTMAX, "predict_softmax")],
)
def test_machines_have_the_scores_of_the_formulas(served, rows, name, method, verb):
    stack, client, packages, _ = served
    inputs = dict(zip((machines.XGBOOST_FEATURES, machines.FM_FEATURES), rows, strict=True))
    packed = {key: each for name, of in inputs.items() for key, each in tensors(name, of).items()}
    expected = packages[name].run(packed)["score"]
    answer = client.predict(method, name, inputs)
    shape = expected.shape if name == CLASSES else (len(expected),)
    np.testing.assert_allclose(answer.values, expected.reshape(shape), rtol=0, atol=2e-6)
    found = post(stack, f"/v1/models/{name}:{verb}", document(**inputs))
    np.testing.assert_allclose(found, expected.reshape(shape), rtol=0, atol=2e-6)
    metrics = stack.serve.metrics()
    platform = {MACHINE: "alphafm", CLASSES: "alphafm_softmax"}[name]
    for metric in (f"{platform}_predict", f"{platform}_xgboost_predict"):
        assert metrics[f'{metric}_count{{model="{name}"}}'] == 2
        assert metrics[f'{metric}_sum{{model="{name}"}}'] > 0


def test_versions_of_a_directory_are_loaded_selected_and_listed(served, booster, rows):
    stack, client, _, versions = served
    inputs = {"xgboost_features": rows[0]}
    assert client.predict(PREDICT, TREES, inputs).version == 7
    booster = booster[:5]
    write_trees(booster, versions.parent / "new")
    shutil.move(versions.parent / "new", versions / "8")
    stack.client().wait_until(lambda: client.predict(PREDICT, TREES, inputs).version == 8)
    client.reload(TREES, [7, 8], base_path=str(versions))
    assert client.states(TREES) == {8: "AVAILABLE", 7: "AVAILABLE"}
    old = client.predict(PREDICT, TREES, inputs, version=7)
    new = client.predict(PREDICT, TREES, inputs, label="latest")
    assert (old.version, new.version) == (7, 8)
    np.testing.assert_allclose(new.values, booster.predict(table(rows[0])), rtol=0, atol=1e-6)
    with pytest.raises(grpc.RpcError) as caught:
        client.reload(TREES, [7], base_path="/elsewhere")
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_requests_that_end_xgboost_serving_get_an_answer_or_an_error(served):
    stack, client, _, _ = served
    nothing = {machines.XGBOOST_FEATURES: [], machines.FM_FEATURES: []}
    assert client.predict(ALPHAFM, MACHINE, nothing).values.shape == (0,)
    assert client.predict(SOFTMAX, CLASSES, nothing).values.shape == (0, 3)
    good, infinite = [[(1, 1.0)]], [[(1, float("inf"))]]
    for method, name, inputs in [
        (PREDICT, TREES, {machines.XGBOOST_FEATURES: infinite}),
        (ALPHAFM, MACHINE, {machines.XGBOOST_FEATURES: infinite, machines.FM_FEATURES: good}),
        (ALPHAFM, MACHINE, {machines.XGBOOST_FEATURES: good, machines.FM_FEATURES: infinite}),
        (SOFTMAX, CLASSES, {machines.XGBOOST_FEATURES: infinite, machines.FM_FEATURES: good}),
        (SOFTMAX, CLASSES, {machines.XGBOOST_FEATURES: good, machines.FM_FEATURES: infinite}),
    ]:
        with pytest.raises(grpc.RpcError) as caught:
            client.predict(method, name, inputs)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "inf" in caught.value.details()
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(stack, f"/v1/models/{TREES}:predict", {"xgboost_features": [{"feature_score": 7}]})
    assert refused.value.code == 400
    assert json.load(refused.value)["reason"] == "REQUEST_MALFORMED"
    stack.check()
    metrics = stack.serve.metrics()
    assert metrics[f'alphafm_predict_count{{model="{MACHINE}"}}'] == 1
