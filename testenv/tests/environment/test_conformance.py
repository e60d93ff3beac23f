"""Stage 1, environment: the engine that the tests run behaves as TensorFlow Serving is documented
to behave.
"""

from collections import Counter
from pathlib import Path

import pytest

from outrigger_testenv import conformance
from outrigger_testenv.conformance import rows
from outrigger_testenv.conformance.__main__ import main
from outrigger_testenv.conformance.pattern import matches
from outrigger_testenv.conformance.row import DIFFERS, NOT_TRIED, OK, Outcome, Row
from outrigger_testenv.processes import free_ports
from outrigger_testenv.stack import Engine

PARAMETERS = (Path(conformance.__file__).parent / "batching.config").read_text()


@pytest.fixture
def engine(request, tmp_path):
    """An engine of its own: the suite replaces its configuration, and leaves it unusable."""
    batching = getattr(request, "param", None)
    engine = Engine(tmp_path / "engine", tmp_path / "engine.log", batching=batching)
    engine.start()
    yield engine
    engine.process.stop()


def test_the_engine_behaves_as_documented(engine, tmp_path, capsys):
    table = tmp_path / "table.md"
    arguments = ["--engine", engine.endpoint, "--models", str(tmp_path), "--output", str(table)]
    code = main(arguments)
    seen = capsys.readouterr().out
    assert code == 0, seen
    verdicts = Counter(line.split("  ")[0] for line in seen.splitlines())
    assert verdicts[OK] > 80 and verdicts[DIFFERS] == 0, seen
    assert "not tried: needs --file_system_poll_wait_seconds=0" in seen
    assert "not tried: needs --enable_batching" in seen
    assert len(table.read_text().splitlines()) == len(rows.ALL) + 4
    assert list(tmp_path.glob("conformance-*")) == []


@pytest.mark.parametrize("engine", [PARAMETERS], indirect=True, ids=["batching"])
def test_the_engine_batches_as_documented(engine, tmp_path, capsys):
    code = main(["--engine", engine.endpoint, "--models", str(tmp_path)])
    seen = capsys.readouterr().out
    assert code == 0, seen
    verdicts = Counter(line.split("  ")[0] for line in seen.splitlines())
    tried = [row for row in rows.ALL if row.batching]
    assert (verdicts[OK], verdicts[DIFFERS]) == (len(tried), 0), seen
    assert "not tried: needs a start without --enable_batching" in seen


def test_an_engine_that_differs_is_reported(engine, tmp_path, capsys, monkeypatch):
    differing = Row("predict-spec", "a wrong sum", "y=5*", lambda scene: scene.predict("base"))
    failing = Row("predict-failed", "no act", "y=3*", lambda scene: {}["absent"])
    monkeypatch.setattr(rows, "ALL", [differing, failing])
    assert main(["--engine", engine.endpoint, "--models", str(tmp_path)]) == 1
    seen = capsys.readouterr().out
    assert f"{DIFFERS}    predict-spec: a wrong sum" in seen
    assert "seen      y=[[3.0]] z=[[4.0]] by base 123 serving_default" in seen
    assert "seen      KeyError: 'absent'" in seen
    assert "0 as expected, 2 differ, 0 not tried" in seen


def test_an_engine_that_does_not_answer_is_no_engine_that_differs(tmp_path, capsys):
    (port,) = free_ports(1)
    assert main(["--engine", f"127.0.0.1:{port}", "--models", str(tmp_path)]) == 2
    assert "UNAVAILABLE" in capsys.readouterr().err


def test_rows_have_names_of_their_own_and_an_act_or_what_they_need():
    names = Counter(row.name for row in rows.ALL)
    assert [name for name, count in names.items() if count > 1] == []
    assert [row.name for row in rows.ALL if (row.act is None) != bool(row.needs)] == []


def test_a_star_stands_for_any_text():
    assert matches("NOT_FOUND: *of (base)*", "NOT_FOUND: no\nversions of (base)")
    assert matches("*", "") and matches("a", "a")
    assert not matches("a*b", "abc") and not matches("a.c", "abc")


def test_a_row_without_an_act_is_no_difference():
    row = Row("name", "about", "expected", needs="--flag")
    assert Outcome(row, "not tried: needs --flag", is_tried=False).verdict == NOT_TRIED
