"""The API server of the tests: built once for each content of its files. One that is not built
skips a test, or fails it under CI.
"""

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


@pytest.mark.parametrize("changed", ["go.mod", "go.sum", "main.go"])
def test_each_content_of_its_files_is_built_once(tmp_path, monkeypatch, changed):
    source, builds = tmp_path / "source", []
    source.mkdir()
    for name in ("go.mod", "go.sum", "main.go", "other.txt"):
        (source / name).write_text("first")

    def build(directory):
        builds.append((source / changed).read_text())
        (directory / "kubernetes").touch()

    monkeypatch.setattr(program, "_SOURCE", source)
    monkeypatch.setattr(program, "_build", build)
    first = program.built()
    (source / "other.txt").write_text("second")
    assert first == program.built() == program.installed()
    (source / changed).write_text("second")
    with pytest.raises(program.Missing):
        program.installed()
    second = program.built()
    assert second == program.installed() != first
    assert builds == ["first", "second"]
    assert second.is_file() and not first.exists(), "the earlier one is removed"


def test_the_version_is_that_of_the_module():
    assert program.version().startswith("v1.")
