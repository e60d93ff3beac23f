"""Random frames have the features of metadata.json."""

from outrigger_testenv.everything import INPUTS
from outrigger_testenv.features import TREATMENT, USER, Metadata
from outrigger_testenv.packing import pack
from outrigger_testenv.samples import sample

METADATA = Metadata(tuple(INPUTS))


def test_samples_can_be_packed():
    users = sample(METADATA, USER, 50)
    offers = sample(METADATA, TREATMENT, 50)
    tensors = pack(METADATA, users, offers)
    assert tensors["treatment_numeric"].shape == (50, 50, 5)


def test_required_features_are_always_there_and_others_sometimes_not():
    offers = sample(METADATA, TREATMENT, 200)
    assert offers["discount"].notna().all()
    assert 0 < offers["days_live"].isna().sum() < 200


def test_every_word_is_drawn_and_an_unknown_one_too():
    words = set(sample(METADATA, USER, 200)["channel"].dropna())
    assert {"phone", "web", "multichannel"} < words


def test_a_sample_without_rows_is_empty():
    assert len(sample(METADATA, TREATMENT, 0)) == 0
