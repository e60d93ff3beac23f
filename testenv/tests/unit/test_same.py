"""The comparison of two programs: cases, their variations, and masks."""

import json

import pytest

from outrigger_testenv.same import cases
from outrigger_testenv.same.mask import Mask
from outrigger_testenv.same.vary import variations

DOCUMENT = {"user": {"age": 30}, "treatments": [{"id": "a"}, {"id": "b"}]}


def test_each_variation_changes_the_document_and_has_a_name_of_its_own():
    every = variations(DOCUMENT, "a name", 10_000)
    labels = [label for label, _ in every]
    assert len(set(labels)) == len(labels) > 100
    texts = [json.dumps(changed) for _, changed in every]
    assert json.dumps(DOCUMENT) not in texts
    assert {"user": {"age": None}, "treatments": DOCUMENT["treatments"]} in [
        changed for _, changed in every
    ]


def test_a_seed_always_draws_the_same_variations():
    assert variations(DOCUMENT, "one", 20) == variations(DOCUMENT, "one", 20)
    assert variations(DOCUMENT, "one", 20) != variations(DOCUMENT, "other", 20)
    assert DOCUMENT == {"user": {"age": 30}, "treatments": [{"id": "a"}, {"id": "b"}]}


def test_there_are_two_thousand_cases_whose_names_are_unique():
    found = cases.read()
    assert len(found) >= 2000
    assert len({case.name for case in found}) == len(found)
    assert {case.kind for case in found} == set(cases.KINDS)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("took 17.5ms", "took <duration>"),
        ("used 3s ago", "used <duration> ago"),
        ("at 127.0.0.1:40123", "at <address>"),
        ("/tmp/stack/serve is full", "<stack>/serve is full"),
        ("since 2026-11-29T10:00:00.5Z", "since <time>"),
        ("score 0.5, 3 rows", "score 0.5, 3 rows"),
        ("job 01234567890abcde", "job <job>"),
        ("is 1.1308719217777252", "is 1.1308719217777252"),
    ],
)
def test_times_and_places_are_masked_and_nothing_else(text, masked):
    assert Mask({"/tmp/stack": "<stack>"})([text, {"message": text}]) == [
        masked,
        {"message": masked},
    ]


def test_fields_that_are_measured_are_masked():
    masked = Mask({})({"retry_after_ms": 17, "score": 0.5})
    assert masked == {"retry_after_ms": "<measured>", "score": 0.5}


def test_the_usual_delay_before_a_retry_is_kept():
    usual = {"retry_after_ms": "200", "retryDelay": "0.200s"}
    assert Mask({})(usual) == usual
    assert Mask({})({"retryDelay": "0.300s"}) == {"retryDelay": "<measured>"}
