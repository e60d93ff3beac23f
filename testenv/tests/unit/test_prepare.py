"""`scripts/prepare`, which runs the steps before a demo side by side."""

import os
import select
import signal
import subprocess
import sys

import pytest

from outrigger_testenv.binary import repository


@pytest.fixture
def prepare(tmp_path):
    """Starts the script in a directory."""

    def start(*steps):
        command = [sys.executable, repository() / "scripts/prepare", "--then", "the demo", *steps]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **pipes)

    return start


def test_steps_run_side_by_side(prepare):
    # Each waits until the other one has begun.
    waits = "mkfifo {0} 2> /dev/null; mkfifo {1} 2> /dev/null; echo > {0} & read -r _ < {1}"
    script = prepare(f"one={waits.format('a', 'b')}", f"two={waits.format('b', 'a')}")
    out, err = script.communicate(timeout=60)
    assert (script.returncode, err) == (0, "")
    assert out.splitlines()[0] == "  0:00  one, two; then the demo"
    assert sorted(line[8:] for line in out.splitlines()[1:]) == ["one: done", "two: done"]


def test_a_step_that_fails_ends_the_others_and_shows_its_output(prepare, tmp_path):
    os.mkfifo(tmp_path / "begun")
    fails = r"read -r _ < begun; printf 'Building [=> ] 1/9\rerror: no room\n'; exit 7"
    script = prepare(f"fails={fails}", "waits=echo > begun; exec sleep 600")
    out, err = script.communicate(timeout=60)
    assert (script.returncode, err) == (7, "error: no room\n")
    assert out.splitlines()[-1].endswith("fails: failed")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_running(prepare, tmp_path, sent):
    os.mkfifo(tmp_path / "begun")
    # The sleep is a child of a child, and holds the pipe open as long as it lives.
    script = prepare("waits=(exec 3> begun; sleep 600) & wait")
    with (tmp_path / "begun").open() as begun:
        os.killpg(script.pid, sent)
        assert script.wait(timeout=60) == 128 + sent
        ended = select.poll()
        ended.register(begun, select.POLLHUP)
        assert ended.poll(60_000), "the last process that could write to it ends"
