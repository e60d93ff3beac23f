"""Frames as messages: both forms have the same values, and missing values are not sent."""

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv import requests
from outrigger_testenv.client import Client, request, selector

FRAME = pd.DataFrame(
    {
        "price": [0.5, np.nan],
        "clicks": [3, 4],
        "colour": ["red", None],
        "embedding": [[1.0, 2.0], [3.0, 4.0]],
    },
    index=["a", "b"],
)


def test_key_values_omit_missing_features():
    first, second = requests.treatments(FRAME)
    assert (first.id, second.id) == ("a", "b")
    assert first.features["price"].number == 0.5
    assert first.features["clicks"].integer == 3
    assert first.features["colour"].text == "red"
    assert list(first.features["embedding"].numbers.values) == [1, 2]
    assert sorted(second.features) == ["clicks", "embedding"]


def test_a_float_that_float32_rounds_travels_as_double():
    exact, rounded = requests.treatments(pd.DataFrame({"x": [0.5, 0.1]}))
    assert exact.features["x"].WhichOneof("kind") == "number"
    assert rounded.features["x"].real == 0.1


def test_a_vector_that_float32_rounds_travels_as_doubles():
    exact, rounded = requests.treatments(pd.DataFrame({"x": [[0.5, 2.0], [0.5, 0.1]]}))
    assert exact.features["x"].WhichOneof("kind") == "numbers"
    assert list(rounded.features["x"].reals.values) == [0.5, 0.1]


@pytest.mark.parametrize("value", [True, np.True_])
def test_flags_are_not_integers(value):
    features = requests.user_features({"x": value}).features
    assert features["x"].WhichOneof("kind") == "flag"


def test_a_value_of_no_kind_is_refused():
    with pytest.raises(TypeError, match="dict is no feature value"):
        requests.user_features({"x": {"a": 1}})


def test_a_table_has_rows_of_numbers_and_columns_of_the_rest():
    table = requests.table(FRAME)
    assert table.count == 2
    assert list(table.ids) == ["a", "b"]
    assert list(table.numbers.names) == ["price", "embedding"]
    assert list(table.numbers.widths) == [1, 2]
    values = np.frombuffer(table.numbers.values, "<f4").reshape(2, 3)
    assert values.tolist() == [[0.5, 1, 2], [0, 3, 4]]
    # Row 0 has both values, row 1 only the second.
    assert table.numbers.validity == bytes([0b1011])
    assert list(table.integers[0].values) == [3, 4]
    assert list(table.texts[0].values) == ["red", ""]
    assert table.texts[0].validity == bytes([0b01])


def test_lists_of_different_lengths_have_row_offsets():
    frame = pd.DataFrame(
        {
            "words": [["a"], ["b", "c"], None],
            "counts": [[1, 2], [], [3]],
            "prices": [[0.5], [1.5, 2.5], []],
        }
    )
    message = requests.table(frame)
    assert list(message.texts[0].values) == ["a", "b", "c"]
    assert list(message.texts[0].row_offsets) == [0, 1, 3, 3]
    assert message.texts[0].validity == b"\x03"
    assert list(message.integers[0].row_offsets) == [0, 2, 2, 3]
    assert np.frombuffer(message.lists[0].values, "<f4").tolist() == [0.5, 1.5, 2.5]
    assert list(message.lists[0].row_offsets) == [0, 1, 3, 3]
    assert not message.HasField("numbers")


def test_a_full_table_needs_no_bitmap():
    table = requests.table(pd.DataFrame({"x": [1.0, 2.0]}))
    assert table.numbers.validity == b""
    assert not table.numbers.widths


def test_rows_keep_the_types_of_their_columns():
    rows = list(requests.rows(pd.DataFrame({"n": [1], "x": [0.5], "s": ["a"]})))
    assert rows == [{"n": 1, "x": 0.5, "s": "a"}]
    assert isinstance(rows[0]["n"], int)


def test_users_are_cut_into_calls():
    users = pd.DataFrame({"x": range(5)}, index=list("abcde"))
    calls = list(Client.encode(users, FRAME, users_per_call=2))
    assert [[each.routing_key for each in call.requests] for call in calls] == [
        ["a", "b"],
        ["c", "d"],
        ["e"],
    ]
    assert calls[2].requests[0].treatment_table.count == 2


def test_a_frame_a_user_must_be_a_frame_for_every_user():
    with pytest.raises(ValueError, match="2 users, but treatments for 1"):
        list(Client.encode(pd.DataFrame({"x": [1, 2]}), [FRAME]))


def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match="no form 'rows'"):
        request({}, FRAME, form="rows")


def test_a_selector_takes_a_tag_or_a_digest():
    assert selector("m", tag="live").tag == "live"
    assert selector("m").WhichOneof("version") is None
    with pytest.raises(ValueError, match="not both"):
        selector("m", "live", "sha256:0")
