"""Contributions of the columns of sparse rows: equal to XGBoost's for the same matrix."""

import json
import urllib.request

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xgboost

from outrigger_testenv import boosters, requests
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.client import request, selector
from outrigger_testenv.features import JOINED, TREATMENT, Input, Metadata, Output, sparse_list
from outrigger_testenv.jsonform import http_request
from outrigger_testenv.machines import XGBOOST_FEATURES
from outrigger_testenv.sparse import Sparse

COLUMNS = 100_000
# The columns that decide about the label, among them the first and the last.
DECIDING = [0, 7, 4000, 50_000, COLUMNS - 1]
INPUT = Input(
    XGBOOST_FEATURES,
    JOINED,
    "int64",
    (sparse_list("words", 60, entity=TREATMENT, default=[]),),
    f"{XGBOOST_FEATURES}_lengths",
    f"{XGBOOST_FEATURES}_weights",
)


def matrix(rows):
    """XGBoost's matrix of rows that are dicts of ids with their weights."""
    rows = [{id: weight for id, weight in row.items() if id < COLUMNS} for row in rows]
    offsets = np.cumsum([0, *map(len, rows)])
    ids = [id for row in rows for id in row]
    weights = np.array([weight for row in rows for weight in row.values()], "f4")
    return scipy.sparse.csr_matrix((weights, ids, offsets), (len(rows), COLUMNS))


def drawn(draw, count):
    """Rows with some of the deciding columns, some others, and ids of no column."""

    def row():
        some = draw.choice(DECIDING, 3, replace=False)
        others = draw.integers(0, COLUMNS + 1000, 20)
        return {int(id): float(np.float32(draw.normal())) for id in [*others, *some]}

    return [row() for _ in range(count)]


@pytest.fixture(scope="module", params=[1, 3], ids=["binary", "classes"])
def booster(request):
    draw = np.random.default_rng(5)
    rows = drawn(draw, 2000)
    sums = np.array([sum(row.get(id, 0.3) for id in DECIDING) for row in rows])
    labels = np.digitize(sums, [0.3, 1.2][: max(request.param - 1, 1)])
    parameters = {"objective": "binary:logistic", "max_depth": 5}
    if request.param > 1:
        parameters |= {"objective": "multi:softprob", "num_class": request.param}
    return xgboost.train(parameters, xgboost.DMatrix(matrix(rows), labels), 10)


def package(booster, directory):
    margins = booster.predict(xgboost.DMatrix(matrix([{}])), output_margin=True).size
    metadata = Metadata(
        (INPUT,),
        (Output("margin", "score", width=margins),),
        signature="sparse",
        framework=boosters.FRAMEWORK,
    )
    boosters.write(booster, directory, None, {})
    metadata.write(directory)
    return ModelPackage(directory), margins


def test_contributions_of_sparse_rows_equal_xgboosts(stack, client, serving, booster, tmp_path):
    made, margins = package(booster, tmp_path)
    name = f"sparse/explained-{margins}"
    serving(made, name)
    rows = [*drawn(np.random.default_rng(7), 20), {}]
    own = xgboost.DMatrix(matrix(rows))
    expected = booster.predict(own, pred_contribs=True).reshape(len(rows), margins, COLUMNS + 1)
    own_margins = booster.predict(own, output_margin=True).reshape(len(rows), margins)
    words = [Sparse(list(row), list(row.values())) for row in rows]
    # The last weight of an id counts.
    known = next(id for id in rows[0] if id in DECIDING)
    twice = Sparse([known, *words[0].ids], [9.0, *words[0].weights])
    offered = pd.DataFrame({"words": [twice, *words[1:]]})
    for form in [requests.TABLE, requests.KEY_VALUE]:
        message = request({}, offered, form)
        message.model.CopyFrom(selector(name))
        columns, contributions = client.contributions_by_id(message)
        assert 1 < len(columns) < 2000, "few of the columns"
        assert (np.diff(columns.astype("i8")) > 0).all()
        with_base = [*columns.astype("i8"), COLUMNS]
        np.testing.assert_allclose(contributions, expected[:, :, with_base], atol=1e-4)
        np.testing.assert_allclose(contributions.sum(axis=2), own_margins, atol=1e-4)
        assert not np.delete(expected, with_base, axis=2).any()
    body = json.dumps({"model": {"name": name}, **http_request({}, offered)}).encode()
    with urllib.request.urlopen(f"{stack.serve.http}/v1/explain", body, timeout=10) as answer:
        found = json.load(answer)
    assert (found["columns"], found["features"]) == (columns.tolist(), [])
    of_json = [
        [[*margin["contributions"], margin["base"]] for margin in each["margins"]]
        for each in found["treatments"]
    ]
    assert np.array(of_json, "f4").tolist() == contributions.tolist()
