"""Starting, watching and ending processes."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from outrigger_testenv.processes import Process, ProcessError, free_ports


def program(tmp_path, code):
    return Process("child", [sys.executable, "-c", code], tmp_path / "child.log")


def ended(pid) -> bool:
    """Whether the process is gone, or a zombie that init has not collected yet."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rsplit(")", 1)[1].split()[0] == "Z"


def test_a_process_that_exits_fails_the_wait_at_once_with_its_log(tmp_path):
    process = program(tmp_path, "print('no such flag'); raise SystemExit(64)")
    process.start()
    with pytest.raises(ProcessError, match=r"child ended with 64(.|\n)*child \| no such flag"):
        process.wait_until(lambda: False, timeout=60)


def test_a_process_that_never_gets_ready_is_reported(tmp_path):
    process = program(tmp_path, "import time; time.sleep(60)")
    process.start()
    with pytest.raises(ProcessError, match="not ready after"):
        process.wait_until(lambda: False, timeout=0.05)
    assert process.kill() == -signal.SIGKILL
    assert not process.running


def test_killing_ends_the_children_too(tmp_path):
    code = (
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    process = program(tmp_path, code)
    process.start()
    process.wait_until(lambda: process.log.read_text().endswith("\n"))
    child = int(process.log.read_text())
    process.kill()
    deadline = time.monotonic() + 10
    while not ended(child):
        assert time.monotonic() < deadline, "the child outlives its parent"
        time.sleep(0.01)


def test_a_process_outlives_the_thread_that_started_it(tmp_path):
    process = program(tmp_path, "import time; time.sleep(600)")
    thread = threading.Thread(target=process.start)
    thread.start()
    thread.join()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait_until_ended(timeout=0.5)
    process.kill()


def test_a_process_can_be_started_again(tmp_path):
    process = program(tmp_path, "print('here')")
    for _ in range(2):
        process.start()
        with pytest.raises(ProcessError):
            process.wait_until(lambda: False)
    assert process.log.read_text() == "here\nhere\n"


def test_a_running_process_is_not_started_twice(tmp_path):
    process = program(tmp_path, "import time; time.sleep(60)")
    process.start()
    with pytest.raises(ProcessError, match="running already"):
        process.start()
    assert process.stop() == -signal.SIGTERM


def test_free_ports_are_different():
    assert len(set(free_ports(20))) == 20
