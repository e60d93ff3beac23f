"""Sparse features: the tensors of rows of ids, and their forms in requests."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv import requests
from outrigger_testenv.elements import PackingError
from outrigger_testenv.features import (
    JOINED,
    TREATMENT,
    USER,
    Feature,
    Input,
    Metadata,
    sparse_list,
    weight_of,
)
from outrigger_testenv.jsonform import features
from outrigger_testenv.packing import pack
from outrigger_testenv.samples import sample
from outrigger_testenv.sparse import Sparse

LARGEST = 2**64 - 1


def sparse_input(entity: str, *of: Feature) -> Input:
    return Input("ids", entity, "int64", of, lengths="lengths", weights="weights")


def packed(feature: Feature, values: list) -> list[list[tuple[int, float]]]:
    users = pd.DataFrame({feature.name: pd.Series(values, dtype=object)})
    return rows(pack(Metadata((sparse_input(USER, feature),)), users, pd.DataFrame()))


def rows(tensors: dict[str, np.ndarray]) -> list[list[tuple[int, float]]]:
    """The ids, with their weights, of each row."""
    ids, weights = tensors["ids"].view(np.uint64), tensors["weights"]
    entries = list(zip(ids.tolist(), weights.tolist(), strict=True))
    ends = np.cumsum([0, *tensors["lengths"].ravel()])
    assert ends[-1] == len(entries)
    return [entries[start:end] for start, end in pairwise(ends)]


def test_a_row_has_the_ids_of_its_features_in_order():
    of = sparse_list("x", 3, default=[7]), weight_of("age", 9, default=[])
    users = pd.DataFrame(
        {"age": [0.5, None], "x": [None, Sparse(ids=[LARGEST, 2], weights=[0.25, 4])]}
    )
    tensors = pack(Metadata((sparse_input(USER, *of),)), users, pd.DataFrame())
    assert rows(tensors) == [[(7, 1), (9, 0.5)], [(LARGEST, 0.25), (2, 4)]]
    assert [tensors[name].dtype.str for name in ("ids", "weights", "lengths")] == [
        "<i8",
        "<f4",
        "<i8",
    ]


def test_lists_of_ids_and_single_ones_have_weights_of_1():
    feature = sparse_list("x", 2, default=[])
    assert packed(feature, [[3, 3], 4, [], None]) == [[(3, 1), (3, 1)], [(4, 1)], [], []]


def test_names_become_the_ids_of_a_vocabulary():
    feature = sparse_list("x", 3, vocabulary={"a": 5, "b": LARGEST}, default=["a"])
    values = [Sparse(names=["b", "c", "a"], weights=[1, 2, 3]), ["a"], None]
    assert packed(feature, values) == [[(LARGEST, 1), (5, 3)], [(5, 1)], [(5, 1)]]
    other = sparse_list("x", 1, vocabulary=("a", "b"), out_of_vocabulary=9, default=[])
    assert packed(other, ["b", "c"]) == [[(1, 1)], [(9, 1)]]


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 3],
        [-1],
        [0.5],
        ["a"],
        Sparse(ids=[1], weights=[1, 2]),
        Sparse(ids=[1], weights=[np.nan]),
        Sparse(ids=[2**64]),
    ],
)
def test_what_is_no_list_of_ids_is_refused(value):
    with pytest.raises(PackingError, match='"x"'):
        packed(sparse_list("x", 2, default=[]), [value])


def test_rows_of_treatments_have_lengths_of_zero_as_padding():
    metadata = Metadata((sparse_input(TREATMENT, sparse_list("x", 2, default=[])),))
    offers = [pd.DataFrame({"x": [[1], [2, 3]]}), pd.DataFrame({"x": [[4]]})]
    tensors = pack(metadata, pd.DataFrame(index=range(2)), offers)
    assert tensors["lengths"].tolist() == [[1, 2], [1, 0]]
    assert tensors["ids"].tolist() == [1, 2, 3, 4]


def test_joined_rows_have_the_ids_of_the_user_first():
    of = (
        Feature("x", entity=TREATMENT, max=2, default=[]),
        Feature("y", entity=USER, max=2, default=[]),
    )
    metadata = Metadata((sparse_input(JOINED, *of),))
    users = pd.DataFrame({"y": [[8], [9, 9]]})
    tensors = pack(metadata, users, pd.DataFrame({"x": [[1], []]}))
    assert tensors["lengths"].tolist() == [2, 1, 3, 2]
    assert tensors["ids"].tolist() == [8, 1, 8, 9, 9, 1, 9, 9]


def test_each_form_of_a_request_has_ids_and_weights():
    value = Sparse(ids=[LARGEST, 1], weights=[0.5, 2])
    assert features({"x": value}) == {"x": {"ids": [LARGEST, 1], "weights": [0.5, 2]}}
    assert features({"x": Sparse(names=["a"])}) == {"x": {"names": ["a"]}}
    sent = requests.user_features({"x": value}).features["x"].sparse
    assert (list(sent.ids), list(sent.weights)) == ([LARGEST, 1], [0.5, 2])
    [column] = requests.table(pd.DataFrame({"x": [value, None, Sparse()]})).sparse
    assert (column.name, list(column.ids)) == ("x", [LARGEST, 1])
    assert list(column.row_offsets) == [0, 2, 2, 2]
    assert column.validity == bytes([0b101])
    assert np.frombuffer(column.weights, "<f4").tolist() == [0.5, 2]


def test_a_column_gives_weights_of_one_beside_others():
    lists = [Sparse(ids=[7]), Sparse(ids=[8, 9], weights=[0.5, 2]), None]
    [column] = requests.table(pd.DataFrame({"x": lists})).sparse
    assert list(column.ids) == [7, 8, 9]
    assert np.frombuffer(column.weights, "<f4").tolist() == [1, 0.5, 2]
    [column] = requests.table(pd.DataFrame({"x": [Sparse(ids=[7]), None]})).sparse
    assert column.weights == b""


def test_metadata_is_read_back_as_it_was_written():
    of = sparse_list("x", 3, vocabulary={"a": 5}, default=[]), weight_of("age", 9, required=True)
    metadata = Metadata((sparse_input(USER, *of),))
    assert Metadata.from_json(metadata.to_json()) == metadata


def test_samples_can_be_packed():
    of = sparse_list("x", 3, default=[]), sparse_list("y", 2, vocabulary=("a",), default=[])
    metadata = Metadata((sparse_input(USER, *of, weight_of("age", 9, default=[])),))
    users = sample(metadata, USER, 50)
    assert len(rows(pack(metadata, users, pd.DataFrame()))) == 50
