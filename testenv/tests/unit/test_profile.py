"""profile.json computed from training data."""

import subprocess

import pandas as pd
import pytest

from outrigger_testenv.binary import outrigger
from outrigger_testenv.features import (
    TREATMENT,
    TREATMENT_COUNT,
    USER,
    Input,
    Metadata,
    hashed,
    numeric,
    text,
    vector,
    vocabulary,
)
from outrigger_testenv.profile import profile
from outrigger_testenv.variants import tiny

METADATA = Metadata(
    (
        Input("user", USER, "float32", (numeric("age", default=1), vector("v", 2, required=True))),
        Input(
            "words",
            USER,
            "int64",
            (
                vocabulary("channel", ["web", "phone"], default="web"),
                vocabulary("size", [36, 38], default=36),
                hashed("city", 10, default=""),
            ),
        ),
        Input("texts", USER, "string", (text("name", default=""),)),
        Input("offer", TREATMENT, "float32", (numeric("price", required=True),)),
        Input("count", TREATMENT_COUNT, "int32"),
    )
)
USERS = pd.DataFrame(
    {
        "age": [None, *range(1, 10)],
        "channel": ["web"] * 5 + ["phone"] * 3 + ["fax", None],
        "size": [36] * 6 + [38] * 3 + [99],
    }
)
OFFERS = pd.DataFrame({"price": [2.0, 2.0, 2.0, 0.5]})


@pytest.fixture(scope="module")
def entries():
    features = profile(METADATA, USERS, OFFERS)["features"]
    return {entry["name"]: entry for entry in features}


def test_only_numbers_and_words_are_profiled(entries):
    assert list(entries) == ["age", "channel", "size", "price"]
    assert [each.get("entity") for each in entries.values()] == [None, None, None, "treatment"]


def test_words_have_their_shares(entries):
    channel = entries["channel"]
    assert (channel["words"], channel["shares"]) == (["web", "phone"], [0.5, 0.3])
    assert (channel["out_of_vocabulary"], channel["missing"]) == (0.1, pytest.approx(0.1))


def test_numbers_fall_into_bins_that_end_at_their_edge(entries):
    assert entries["age"]["edges"] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert entries["age"]["shares"] == [0.1] * 9
    assert entries["size"]["edges"] == [36, 38] and entries["size"]["shares"] == [0.6, 0.3, 0]
    assert entries["price"]["edges"] == [0.5, 2] and entries["price"]["shares"] == [0.25, 0.75, 0]


def test_shares_add_up_also_for_features_that_are_always_missing():
    for users in [USERS, USERS.iloc[:0], USERS[["age"]]]:
        for entry in profile(METADATA, users, OFFERS)["features"]:
            whole = sum(entry["shares"]) + entry["missing"] + entry.get("out_of_vocabulary", 0)
            assert whole == pytest.approx(1), entry


def test_the_servers_checks_take_it(tmp_path):
    package = tiny(tmp_path)
    package.write_profile(pd.DataFrame({"age": [20.0, None]}), OFFERS)
    command = [outrigger(), "validate", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "2 features" in done.stdout, done.stdout + done.stderr
