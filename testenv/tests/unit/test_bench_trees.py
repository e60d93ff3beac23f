"""Figures of tree models: ratios, workers, and the cache."""

import json
import subprocess
import sys

import numpy as np
import pytest

from outrigger_testenv.bench.figure import Failed, Skipped
from outrigger_testenv.bench.trees import cache, machine, serving
from outrigger_testenv.bench.trees.bits import different
from outrigger_testenv.bench.trees.double_kernels import difference
from outrigger_testenv.bench.trees.figures import is_fast_intel
from outrigger_testenv.bench.trees.kernels import fastest, microseconds, ratios
from outrigger_testenv.bench.trees.peer import Timed, of_kind
from outrigger_testenv.bench.trees.workers import Worker, seconds_by_turns, started

# Two models, two turns; seconds of ours, one peer, and another one that cannot load B.
TIMES = {
    ("A", 1): [(1.0, 4.0, 9.0), (2.0, 9.0, 8.0)],
    ("B", 1): [(1.0, 16.0, None), (1.0, 4.0, None)],
    ("A", 16): [(1.0, 1.0, 1.0), (1.0, 1.0, 1.0)],
}

ECHO = """
import json, sys
print("loading")
print("ready", flush=True)
for line in sys.stdin:
    if line == "end\\n":
        sys.exit(3)
    print(json.dumps(line.split()), flush=True)
"""


@pytest.fixture
def root(monkeypatch, tmp_path):
    """A cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "outrigger" / "trees"


def echo(name="echo"):
    return Worker(name, [sys.executable, "-c", ECHO])


def test_a_ratio_is_the_geometric_mean_of_the_fastest_peers_in_each_turn():
    assert ratios(TIMES, 1, 0, 1) == pytest.approx([8.0, 4.0])
    # The second peer alone, beside the first one.
    only_a = {cell: turns for cell, turns in TIMES.items() if cell[0] == "A"}
    assert ratios(only_a, 1, 1, 2) == pytest.approx([9 / 4, 8 / 9])


def test_a_peer_that_cannot_load_a_model_is_left_out():
    assert fastest((None, 2.0, 1.0, None)) == 1.0
    with pytest.raises(ValueError, match="empty"):
        fastest((None,))


def test_the_median_of_each_cell_is_reported_in_microseconds():
    cells = microseconds(TIMES, 1, ["ours", "one", "other"])
    assert cells["A"] == {"ours": 2e6, "one": 9e6, "other": 9e6}
    assert cells["B"]["other"] is None
    assert cells.keys() == {"A", "B"}


def test_margins_are_compared_by_their_bits():
    zeros = np.array([0.0, -0.0, 1.0], np.float32).view(np.uint32).tolist()
    assert different(zeros, zeros) == 0
    assert different(zeros, [0, 0, zeros[2]]) == 1
    assert different(zeros, zeros[:2]) == 3


def test_margins_in_f64_are_compared_by_their_relative_difference():
    def bits(*values):
        return np.array(values).view(np.uint64).tolist()

    assert difference(bits(0.0, -3.0), bits(-0.0, -3.0)) == 0
    assert difference(bits(1.0, -2.0), bits(1.0, -4.0)) == 0.5
    assert difference(bits(1.0), bits(0.0)) == np.inf
    assert difference(bits(np.nan), bits(1.0)) == np.inf
    assert difference(bits(1.0), bits(1.0, 1.0)) == np.inf


def test_rows_of_a_kind_lack_values_or_have_zeros():
    rows = np.arange(1, 1001, dtype=np.float32).reshape(10, 100)
    assert of_kind("dense", rows).tolist() == rows.tolist()
    missing, sparse = of_kind("missing", rows), of_kind("sparse", rows)
    assert abs(np.isnan(missing).sum() - 100) <= 1
    assert abs(np.isnan(sparse).sum() - 550) <= 1
    assert abs((sparse == 0).sum() - 100) <= 1
    rest = ~np.isnan(sparse) & (sparse != 0)
    assert sparse[rest].tolist() == rows[rest].tolist()


def test_margins_are_asked_as_bits_of_whole_batches():
    class Sums:
        def call(self, rows):
            return lambda: rows.sum(axis=1)

    bits = Timed(Sums(), np.ones((5, 3), np.float32)).margins(2, "dense")
    assert np.array(bits, np.uint64).view(np.float64).tolist() == [3.0] * 4


def test_targets_are_higher_for_intels_processors_with_avx_512():
    assert is_fast_intel("vendor_id : GenuineIntel\nflags : avx2 avx512f")
    assert not is_fast_intel("vendor_id : GenuineIntel\nflags : avx2")
    assert not is_fast_intel("vendor_id : AuthenticAMD\nflags : avx2 avx512f")


def test_a_worker_answers_questions_after_it_is_ready():
    with started(echo(), echo("other")) as workers:
        turns = seconds_by_turns(workers, 3, "time", "A", 16)
    assert turns == [(["time", "A", "16"],) * 2] * 3


def test_a_worker_that_ends_fails_the_figure():
    with started(echo()) as (worker,), pytest.raises(Failed, match="echo ended with 3"):
        worker.ask("end")
    silent = Worker("silent", [sys.executable, "-c", ""])
    with pytest.raises(Failed, match="silent ended with 0"), started(silent):
        pass


def test_what_is_made_is_kept(root):
    made = cache.made("models", lambda directory: (directory / "A").touch())
    assert made == root / "models"
    assert cache.made("models", lambda _: pytest.fail("made twice")) == made
    assert (made / "A").exists()


def test_what_was_not_completed_is_made_again(root):
    def fail(directory):
        (directory / "A").touch()
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        cache.made("models", fail)
    assert list(root.iterdir()) == []


def test_libraries_that_cannot_be_installed_skip_the_figure(root, monkeypatch):
    def fail(command, check):
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(Skipped, match=r"treelite==4\.8\.1 cannot be installed"):
        cache.environment("peers", ["treelite==4.8.1"])
    assert list(root.iterdir()) == []


def test_leaves_of_pruned_nodes_are_no_leaves(tmp_path):
    # Node 2 was pruned from the tree.
    tree = {"left_children": [1, -1, -1, -1], "parents": [2147483647, 0, 2147483647, 0]}
    model = {"gradient_booster": {"model": {"trees": [tree]}}}
    (tmp_path / "trees.json").write_text(json.dumps({"learner": model}))
    assert list(machine.leaves(tmp_path / "trees.json")) == [[1, 3]]


def test_a_request_of_the_open_inference_protocol_has_the_rows_as_bytes():
    message = serving.inference(np.array([[1, 2]], np.float32))
    assert message == (
        b"\x0a\x05trees"
        b"\x2a\x10\x0a\x04rows\x12\x04FP32\x1a\x02\x01\x02"
        b"\x3a\x08\x00\x00\x80\x3f\x00\x00\x00\x40"
    )
