"""The comparison of two programs: cases, their variations, and masks."""

import json
from fnmatch import filter as matching

import pytest
import yaml

from outrigger_testenv.same import cases, senders
from outrigger_testenv.same.__main__ import compare, difference, reasons
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


def can_be_sent(case):
    try:
        if "call" in case.content:
            senders.message_of(case.content)
    except senders.Unsendable:
        return False
    return True


def test_there_are_two_thousand_cases_that_can_be_sent_and_whose_names_are_unique():
    found = cases.read()
    assert len({case.name for case in found}) == len(found)
    assert {case.kind for case in found} == set(cases.KINDS)
    sent = [case.name for case in found if can_be_sent(case)]
    assert len(sent) >= 2000
    # Only variations may have no form in protobuf.
    assert {case.name for case in found if case.name.count("/") == 1} <= set(sent)


def test_cases_of_the_open_inference_protocol_go_to_its_listener():
    # Others answer that they do not know the path, whatever is sent.
    assert {case.content.get("listener") for case in cases.read("oip/")} == {"oip"}


def test_what_is_allowed_and_what_no_case_yields_exists_and_has_its_reason():
    names = [case.name for case in cases.read()]
    for entry in yaml.safe_load((cases.DATA / "allowed.yaml").read_text()):
        assert set(entry) == {"cases", "what", "why"}
        is_of_metrics = entry["cases"].startswith("metrics/")
        assert is_of_metrics or matching(names, entry["cases"]), entry
    explained = yaml.safe_load((cases.DATA / "reasons.yaml").read_text())
    assert set(explained) <= reasons()


OUTCOME = {"status": 200, "text": "old", "body": "a\nb"}
ENTRY = {"cases": "http/*", "what": '^ +"text": ', "why": "the text was changed"}


@pytest.mark.parametrize(
    ("case", "now", "faults", "unused"),
    [
        pytest.param("http/a", OUTCOME, 0, 1, id="nothing"),
        pytest.param("http/a", {**OUTCOME, "text": "new"}, 0, 0, id="allowed"),
        pytest.param("http/a", {**OUTCOME, "text": "new", "status": 400}, 1, 0, id="another line"),
        pytest.param("grpc/a", {**OUTCOME, "text": "new"}, 1, 1, id="another case"),
        pytest.param("http/a", {**OUTCOME, "body": "a\r\nb"}, 1, 1, id="end of a line"),
    ],
)
def test_a_difference_is_a_fault_unless_an_entry_allows_each_line_of_it(case, now, faults, unused):
    found, left = compare({case: OUTCOME}, {case: now}, [ENTRY])
    assert (len(found), len(left)) == (faults, unused)


LAST = "outrigger: the last request that failed: a:1: {}\n"


@pytest.mark.parametrize(
    ("old", "new", "is_found"),
    [
        pytest.param(LAST.format("old") + "end", "end", False, id="it did not come"),
        pytest.param(LAST.format("old"), LAST.format("old"), False, id="the same"),
        pytest.param(LAST.format("old"), LAST.format("new"), True, id="another"),
        pytest.param("outrigger: 1 of 9 rows, 0 dead\n", LAST.format("new"), False, id="others"),
        pytest.param(LAST.format("old"), "outrigger: the last that failed\n", True, id="words"),
    ],
)
def test_a_line_that_comes_by_time_is_compared_where_it_came_in_both(old, new, is_found):
    mask = Mask({})
    assert bool(difference(mask({"errors": old}), mask({"errors": new}))) == is_found


@pytest.mark.parametrize("other", ['{"b": 1, "a": "x"}', '{"a": "x", "b": "1"}'])
def test_the_order_of_keys_and_the_types_of_numbers_are_compared(other):
    old = senders.readable(b'{"a": "x", "b": 1}')
    assert difference(old, senders.readable(other.encode()))


def test_a_case_without_an_outcome_is_a_fault():
    assert list(compare({"http/a": OUTCOME}, {}, [])[0]) == ["http/a"]


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


def test_durations_and_addresses_of_a_configuration_are_kept():
    text = "delay: 200ms\naddress: 127.0.0.1:8080\n"
    assert Mask({})(text, "configuration") == text != Mask({})(text)


def test_what_fields_that_are_measured_are_named_is_kept():
    history = {"from": "#1796000000", "rows": ["#7"], "step_seconds": "#1"}
    masked = {name: "<measured>" for name in history}
    causes = [{"at": "2026-11-29T10:00:00.5Z", "cause": "asked for"}]
    kept = [{"at": "<time>", "cause": "asked for"}]
    assert Mask({})({"history": history}) == {"history": masked}
    assert Mask({})({"history": causes}) == {"history": kept}
    assert Mask({})({"timing": {"engine": "#12"}}) == {"timing": {"engine": "<measured>"}}


def test_fields_that_are_measured_are_masked():
    masked = Mask({})({"retry_after_ms": 17, "score": 0.5})
    assert masked == {"retry_after_ms": "<measured>", "score": 0.5}


def test_the_usual_delay_before_a_retry_is_kept():
    usual = {"retry_after_ms": "#200", "retryDelay": "0.200s"}
    assert Mask({})(usual) == usual
    assert Mask({})({"retryDelay": "0.300s"}) == {"retryDelay": "<measured>"}
