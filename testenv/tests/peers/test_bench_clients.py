"""Every load generator gets the model's own scores from a real stack, for the same requests."""

from types import SimpleNamespace

import pytest

from outrigger_testenv.bench import clients
from outrigger_testenv.bench.clients import BENCH, CORE, GO, GO_HTTP, ONE, Call, Served, run
from outrigger_testenv.bench.figure import Effort, Failed, Skipped
from outrigger_testenv.bench.messages import Messages
from outrigger_testenv.bench.setup import COLUMNAR, JSON, KEY_VALUE, MODEL

# Large enough for several frames of 16 KiB.
TREATMENTS = 200
SHORT = Effort(repeats=1, warmup=0.1, measured=0.4, held=0)


@pytest.fixture(scope="module")
def served(stack, reference):
    """The shared stack with the reference model."""
    digest = stack.push(reference, MODEL)
    client = stack.client()
    client.load(MODEL)
    client.wait_until_serving(MODEL, digest)
    return Served(stack, reference, Messages(reference))


@pytest.mark.parametrize(
    ("client", "form"),
    [
        (BENCH, KEY_VALUE),
        (BENCH, JSON),
        (ONE, COLUMNAR),
        (GO, COLUMNAR),
        (GO, KEY_VALUE),
        (GO_HTTP, JSON),
        (CORE, COLUMNAR),
        (CORE, KEY_VALUE),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_client_gets_the_scores_of_the_model(served, client, form):
    if client in (GO, GO_HTTP):
        try:
            clients.needs_go()
        except Skipped as missing:
            pytest.skip(str(missing))
    report = run(client, served, Call(form, TREATMENTS, in_flight=4, timeout=30), SHORT)
    assert report.throughput > 0
    assert report.failed == 0
    assert report.cpu("control-plane", "engine") > 0


def test_a_run_that_got_other_scores_is_refused(served):
    honest = served.package

    def score(users, treatments):
        return [scores + 0.01 for scores in honest.score(users, treatments)]

    other = SimpleNamespace(directory=honest.directory, score=score)
    doubted = Served(served.stack, honest, Messages(other))
    with pytest.raises(Failed, match="the scores for request 0 are not those of the model"):
        run(ONE, doubted, Call(COLUMNAR, 3, in_flight=2, timeout=30), SHORT)
