"""The API server of the tests: one that is not built skips a test, or fails it under CI."""

import pytest

from outrigger_testenv.kubernetes import program


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """A cache in which nothing was built."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_test_without_the_server_is_skipped(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="`make kube-apiserver` does it"):
        program.needs()


def test_it_fails_under_ci(monkeypatch):
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="`make kube-apiserver` does it"):
        program.needs()


def test_without_go_the_server_cannot_be_built(monkeypatch):
    monkeypatch.setattr(program.tools, "go", lambda: None)
    with pytest.raises(program.Missing, match="Go is not installed"):
        program.built()
    assert not any(program.caches.root().rglob("kubernetes-*"))


def test_the_version_is_that_of_the_module():
    assert program.version().startswith("v1.")
