"""Other servers of the Open Inference Protocol: their environments and models."""

import subprocess

import numpy as np
import pytest

from outrigger_testenv.oip import __main__ as fill
from outrigger_testenv.oip import environments, peers
from outrigger_testenv.oip.models import ALL, Served
from outrigger_testenv.oip.packages import package
from outrigger_testenv.oip.peers import Triton


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own, with the commands that were run for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    commands = []

    def run(command, check):
        commands.append([str(part) for part in command])
        if "venv" in command:
            command[-1].mkdir(parents=True)

    monkeypatch.setattr(subprocess, "run", run)
    return tmp_path / "outrigger" / "oip", commands


@pytest.fixture
def cannot_install(cache, monkeypatch):
    def fail(command, check):
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", fail)


def test_an_environment_is_made_once_and_pinned(cache):
    root, commands = cache
    place = environments.environment("triton")
    assert place.parent == root and place.name.startswith("triton-")
    assert environments.environment("triton") == place
    assert [command[2] for command in commands] == ["venv", "pip"]
    assert commands[1][-3:-1] == ["--no-deps", "--requirement"]
    assert environments.installed("triton") == place / "bin" / "python"


def test_other_requirements_replace_an_environment(cache, tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "triton.txt").write_text(f"package=={name}\n")
    monkeypatch.setattr(environments, "_REQUIREMENTS", tmp_path / "one")
    before = environments.environment("triton")
    monkeypatch.setattr(environments, "_REQUIREMENTS", tmp_path / "two")
    after = environments.environment("triton")
    root, _ = cache
    assert before != after
    assert {each.name for each in root.iterdir()} == {after.name, f"{after.name}.complete"}


def test_all_requirements_are_pinned():
    for name in (*environments.NAMES, *environments.MEASURED):
        lines = environments._requirements(name).read_text().splitlines()
        wanted = [line for line in lines if not line.startswith("#")]
        assert wanted and all(line.count("==") == 1 for line in wanted)


def test_what_cannot_be_installed_is_skipped_but_in_ci(cannot_install, monkeypatch):
    with pytest.raises(environments.Missing, match=r"triton\.txt cannot be installed"):
        environments.environment("triton")
    with pytest.raises(pytest.skip.Exception, match=r"triton\.txt cannot be installed"):
        environments.needs(environments.TRITON)
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match=r"triton\.txt cannot be installed"):
        environments.needs(environments.TRITON)


def test_the_command_says_what_cannot_be_installed(cannot_install, capsys):
    assert fill.main() == 1
    assert "kserve.txt cannot be installed" in capsys.readouterr().err


def test_a_client_is_not_installed_by_a_run_of_the_checks(cache):
    with pytest.raises(environments.Missing, match="make oip-peers"):
        environments.installed("tritonclient")
    assert cache[1] == []


def test_triton_removes_shared_memory_that_nothing_uses(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "_SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(Triton, "command", lambda self: ["true"])
    others, mapped, left = (
        tmp_path / f"triton_python_backend_shm_region_{each}" for each in ("a", "b", "c")
    )
    others.touch()
    triton = Triton(tmp_path / "triton", [])
    triton._memory_before = peers._shared_memory()
    mapped.write_bytes(b"used")
    left.touch()
    memory = np.memmap(mapped, mode="r")
    triton.close()
    assert others.exists() and mapped.exists() and not left.exists()
    del memory


def test_tritons_configuration_says_how_models_are_batched():
    plain = peers._configuration(Served("identity_bytes", datatype="BYTES"))
    assert 'input [{ name: "x" data_type: TYPE_STRING dims: [-1, -1] }]' in plain
    assert "dynamic_batching" not in plain
    slow = next(each for each in ALL if each.name == "slow")
    assert "max_queue_size: 2" in peers._configuration(slow)
    places = peers._configuration(Served("places", max_batch_size=16, instances=8))
    assert "count: 8" in places and "max_queue_size: 16" in places


# NumPy has no BF16.
OF_NUMPY = [each for each in ALL if each.datatype != "BF16"]


@pytest.mark.parametrize("served", OF_NUMPY, ids=lambda served: served.name)
def test_the_packages_compute_what_the_checks_expect(served, tmp_path):
    made = package(served, tmp_path / "package")
    kinds = {"BOOL": bool, "BYTES": object, "INT8": np.int8, "INT32": np.int32}
    kinds |= {"INT64": np.int64, "UINT64": np.uint64, "FP16": np.float16}
    kind = kinds.get(served.datatype, np.float32)
    ones = np.full([1, 2], b"one" if kind is object else 1).astype(kind)
    if served.name == "failing":
        assert made.run({"x": 0 * ones})["OUT_x"].tolist() == [[0, 0]]
        with pytest.raises(Exception, match="inflate"):
            made.run({"x": ones})
        return
    inputs = {name: ones for name in served.inputs}
    if made.metadata.inputs[0].tensor == "row":
        inputs["row"] = np.zeros([1, 1], np.float32)
    outputs = made.run(inputs)
    if served.name == "pair":
        assert outputs["sum"].tolist() == [[2, 2]] and outputs["difference"].tolist() == [[0, 0]]
    elif served.name == "nonfinite":
        assert not np.isfinite(outputs["OUT_x"]).any() and outputs["score"].tolist() == [0]
    else:
        assert outputs["OUT_x"].tolist() == ones.tolist()
