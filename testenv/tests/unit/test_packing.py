"""pack(): the tensors of each kind of feature, without a control plane."""

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv.features import (
    JOINED,
    TREATMENT,
    TREATMENT_COUNT,
    USER,
    Input,
    Metadata,
    hashed,
    list_of,
    numeric,
    text,
    vector,
    vocabulary,
)
from outrigger_testenv.packing import PackingError, pack

ONE_USER = pd.DataFrame({"x": [1.0]})


def user_table(dtype, *features):
    return Metadata((Input("t", USER, dtype, features),))


def packed(dtype, feature, values):
    users = pd.DataFrame({feature.name: pd.Series(values, dtype=object)})
    return pack(user_table(dtype, feature), users, pd.DataFrame())["t"]


def test_features_stand_in_the_order_of_the_metadata():
    metadata = user_table("float32", numeric("b"), vector("v", 2), numeric("a"))
    users = pd.DataFrame({"a": [1.0], "b": [2.0], "v": [[3.0, 4.0]]})
    assert pack(metadata, users, pd.DataFrame())["t"].tolist() == [[2, 3, 4, 1]]


def test_a_missing_value_is_its_default():
    assert packed("float32", numeric("x", default=6), [1.5, None]).tolist() == [[1.5], [6]]


def test_an_absent_column_is_its_default():
    metadata = user_table("float32", numeric("gone", default=6))
    assert pack(metadata, ONE_USER, pd.DataFrame())["t"].tolist() == [[6]]


def test_missing_nan_is_the_quiet_nan():
    assert packed("float32", numeric("x", missing="nan"), [None]).tobytes() == b"\x00\x00\xc0\x7f"


def test_a_required_feature_that_is_missing_is_named():
    with pytest.raises(PackingError, match='row 1 has no "x"'):
        packed("float32", numeric("x", required=True), [1.0, None])


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39])
def test_a_number_that_float32_cannot_hold_is_refused(value):
    with pytest.raises(PackingError, match="not finite"):
        packed("float32", numeric("x"), [value])


def test_infinity_passes_where_it_is_allowed():
    feature = numeric("x", allow_non_finite=True)
    assert packed("float32", feature, [np.inf]).tolist() == [[np.inf]]
    with pytest.raises(PackingError, match="not finite"):
        packed("float32", feature, [1e39])


def test_words_become_their_positions_and_others_the_out_of_vocabulary_index():
    feature = vocabulary("channel", ["phone", "web"], other=7, default="web")
    assert packed("int64", feature, ["phone", "fax", None]).tolist() == [[0], [7], [1]]


def test_integers_can_be_words():
    feature = vocabulary("zone", [10, 20], default=10)
    assert packed("int32", feature, [20, 30.0, None]).tolist() == [[1], [2], [0]]


def test_hashes_are_tensorflows():
    import tensorflow as tf

    words = ["", "a", "zürich", "x" * 300]
    expected = tf.strings.to_hash_bucket_fast(words, 1000).numpy()
    assert packed("int64", hashed("city", 1000), words)[:, 0].tolist() == expected.tolist()


def test_texts_are_utf8():
    assert packed("string", text("city"), ["zürich"]).tolist() == [["zürich".encode()]]


def test_flags_stay_flags():
    assert packed("bool", numeric("x", default=False), [True, None, 1.0]).tolist() == [
        [True],
        [False],
        [True],
    ]
    with pytest.raises(PackingError, match="neither a flag nor 0 or 1"):
        packed("bool", numeric("x"), [2])


def test_a_fraction_is_no_integer():
    assert packed("int64", numeric("x"), [3.0]).tolist() == [[3]]
    with pytest.raises(PackingError, match="no int64 holds"):
        packed("int64", numeric("x"), [3.5])


def test_a_vector_of_another_length_is_refused():
    with pytest.raises(PackingError, match="instead of"):
        packed("float32", vector("v", 3), [[1.0, 2.0]])


@pytest.mark.parametrize(("dtype", "value"), [("float32", "1"), ("int64", "1"), ("string", 1)])
def test_a_value_of_another_type_is_refused(dtype, value):
    with pytest.raises(PackingError, match='"x" is'):
        packed(dtype, numeric("x"), [value])


TREATMENTS = Metadata(
    (
        Input("t", TREATMENT, "float32", (numeric("d", required=True),)),
        Input("n", TREATMENT_COUNT, "int32"),
    )
)


def offers(*values):
    return pd.DataFrame({"d": list(values)}, dtype="float64")


def test_users_with_fewer_treatments_are_padded_and_counted():
    users = pd.DataFrame(index=["a", "b", "c"])
    tensors = pack(TREATMENTS, users, [offers(1, 2), offers(), offers(3)])
    assert tensors["t"].tolist() == [[[1], [2]], [[0], [0]], [[3], [0]]]
    assert tensors["n"].tolist() == [2, 0, 1]
    assert tensors["n"].dtype == np.int32


def test_one_frame_is_offered_to_every_user():
    tensors = pack(TREATMENTS, pd.DataFrame(index=["a", "b"]), offers(1, 2))
    assert tensors["t"].tolist() == [[[1], [2]], [[1], [2]]]


def test_counts_split_the_rows_of_one_frame():
    users = pd.DataFrame(index=["a", "b"])
    tensors = pack(TREATMENTS, users, offers(1, 2, 3), counts=[1, 2])
    assert tensors["t"].tolist() == [[[1], [0]], [[2], [3]]]


def test_counts_that_do_not_fit_are_refused():
    with pytest.raises(PackingError, match="2 counts over 3 rows"):
        pack(TREATMENTS, pd.DataFrame(index=["a", "b"]), offers(1, 2, 3), counts=[1, 1])


def test_joined_rows_have_the_features_of_their_user():
    features = (
        numeric("price", entity=TREATMENT, required=True),
        vocabulary("channel", ["phone", "web"], other=-1, entity=USER, missing="nan"),
    )
    metadata = Metadata((Input("x", JOINED, "float32", features),), framework="xgboost")
    users = pd.DataFrame({"channel": ["web", "fax", None]})
    offers = pd.DataFrame({"price": [1.0, 2.0]})
    shared = pack(metadata, users, offers)["x"]
    expected = [[1, 1], [2, 1], [1, -1], [2, -1], [1, np.nan], [2, np.nan]]
    np.testing.assert_array_equal(shared, np.array(expected, "f4"))
    np.testing.assert_array_equal(pack(metadata, users, [offers] * 3)["x"], shared)
    one_each = pack(metadata, users, pd.DataFrame({"price": [3.0, 4.0, 5.0]}), counts=[1, 0, 2])
    np.testing.assert_array_equal(one_each["x"], [[3, 1], [4, np.nan], [5, np.nan]])
    assert Metadata.from_json(metadata.to_json()) == metadata


def ragged(entity, dtype, feature):
    return Input("t", entity, dtype, (feature,), lengths="n")


def test_lists_of_users_are_values_and_lengths():
    feature = list_of("x", 3, vocabulary=("a", "b"), out_of_vocabulary=2, default=["b"])
    users = pd.DataFrame({"x": pd.Series([["a", "?"], [], None, "b"], dtype=object)})
    tensors = pack(Metadata((ragged(USER, "int64", feature),)), users, pd.DataFrame())
    assert tensors["t"].tolist() == [0, 2, 1, 1]
    assert tensors["n"].tolist() == [2, 0, 1, 1]
    assert (tensors["t"].dtype, tensors["n"].dtype) == (np.int64, np.int64)


def test_lists_of_treatments_have_lengths_of_zero_as_padding():
    metadata = Metadata((ragged(TREATMENT, "string", list_of("x", 2, default=[])),))
    frames = [pd.DataFrame({"x": [["a", "b"], ["c"]]}), pd.DataFrame({"x": [["d"]]})]
    tensors = pack(metadata, pd.DataFrame(index=["u", "v"]), frames)
    assert tensors["t"].tolist() == [b"a", b"b", b"c", b"d"]
    assert tensors["n"].tolist() == [[2, 1], [1, 0]]
    shared = pack(metadata, pd.DataFrame(index=["u", "v"]), frames[1])
    assert shared["t"].tolist() == [b"d", b"d"]
    assert shared["n"].tolist() == [[1], [1]]


def test_shorter_lists_are_padded():
    feature = list_of("x", 3, padding=-1, default=[0.5])
    assert packed("float32", feature, [[1, 2], [], None]).tolist() == [
        [1, 2, -1],
        [-1, -1, -1],
        [0.5, -1, -1],
    ]
    words = list_of("x", 2, padding="-", required=True)
    assert packed("string", words, [["a"]]).tolist() == [[b"a", b"-"]]
    with pytest.raises(PackingError, match="at most 3 values"):
        packed("float32", feature, [[1, 2, 3, 4]])
