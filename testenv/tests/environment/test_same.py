"""The comparison of two programs, run on some cases."""

import subprocess
import sys

from outrigger_testenv.binary import outrigger

# Answers one command otherwise.
OTHER = """\
#!/bin/bash
case "$*" in
  "models list") {program} "$@" | sed s/golden/gulden/ ;;
  *) exec {program} "$@" ;;
esac
"""


def compared(before, only):
    command = [sys.executable, "-m", "outrigger_testenv.same", "--before", before, "--only", only]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_full_queues_give_the_same_outcomes_each_time():
    done = compared(outrigger(), "crowd")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("same: 14 cases, 0 differ,")


def test_an_answer_that_has_changed_is_printed(tmp_path):
    other = tmp_path / "outrigger"
    other.write_text(OTHER.format(program=outrigger()))
    other.chmod(0o755)
    done = compared(other, "faults/list")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "== faults/list\n" in done.stdout
    assert "gulden" in done.stdout
