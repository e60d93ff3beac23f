"""Twenty tag moves under constant load, without a failed request."""

import time

import pandas as pd
import pytest

from outrigger_testenv import variants
from outrigger_testenv.client import request, selector
from outrigger_testenv.load import Load

MODEL = "switch/tiny"
MOVES = 20
REQUESTS = 10_000


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    return variants.versions(tmp_path_factory.mktemp("versions"), range(1, MOVES + 2))


def requests():
    offers = pd.DataFrame({"price": [1.0, 2.0, 3.0]})
    for age in range(16):
        message = request({"age": age}, offers, key=f"user-{age}")
        message.model.CopyFrom(selector(MODEL))
        yield message


def test_no_request_fails_while_a_tag_moves_twenty_times(
    needs_registry, own_stack, packages, tmp_path, capsys
):
    stack = own_stack(overrides={"store": {"max_size": "64MiB"}})
    repository = f"models/{MODEL}"
    digests = [stack.push(each, MODEL, f"v{at}") for at, each in enumerate(packages)]
    assert len(set(digests)) == MOVES + 1
    expected = {digest: float(at + 1) for at, digest in enumerate(digests)}

    stack.registry.tag(repository, digests[0], "latest")
    stack.client().load(MODEL)
    with Load(stack.serve.target, requests(), tmp_path, concurrency=8, expected=expected) as load:
        load.wait_for(digests[0])
        start = time.monotonic()
        for digest in digests[1:]:
            stack.registry.tag(repository, digest, "latest")
            load.wait_for(digest)
        moved = time.monotonic() - start
        load.wait_until(REQUESTS)
        report = load.stop()

    with capsys.disabled():
        print(f"\n  {MOVES} tag moves in {moved:.0f} s; {report}")
    assert report.failed == 0, report.first_errors
    assert report.wrong == 0
    assert report.requests >= REQUESTS
    assert set(report.digests) == set(digests)
