"""Tests whose programs are missing are skipped, or fail under CI."""

import re

import pytest

from outrigger_testenv.binary import repository
from outrigger_testenv.tools import needs

# Programs in the Debian package of another name.
SHIPPED_WITH = {"promtool": "prometheus"}


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch):
    """A PATH with only one program."""
    (tmp_path / "present").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_a_test_without_its_program_is_skipped(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="not installed: absent; see scripts/"):
        needs("present", "absent")


def test_it_fails_under_ci(monkeypatch):
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="not installed: absent, gone; see scripts/"):
        needs("absent", "present", "gone")


def test_a_test_whose_programs_are_there_goes_on(monkeypatch):
    monkeypatch.setenv("CI", "1")
    needs("present")


def test_programs_that_tests_need_can_be_installed():
    script = (repository() / "scripts" / "install-test-tools").read_text()
    installed = set(re.findall(r"\[([\w-]+)\]=", script))
    used = re.findall(r"\bneeds\((\"[^)]*)\)", "\n".join(sources()))
    programs = {each for arguments in used for each in re.findall(r'"([\w-]+)"', arguments)}
    assert "promtool" in programs
    assert {SHIPPED_WITH.get(each, each) for each in programs} <= installed


def sources():
    """The sources of all tests except these."""
    files = (repository() / "testenv" / "tests").rglob("*.py")
    return [each.read_text() for each in files if each.name != "test_tools.py"]
