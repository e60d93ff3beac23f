"""The image's content, and that other tools can read it."""

import json
import re
import stat
import subprocess
from pathlib import Path

import pytest

from outrigger_testenv.binary import outrigger, repository
from outrigger_testenv.image import build as building
from outrigger_testenv.image import sbom
from outrigger_testenv.image.build import TooLarge, build
from outrigger_testenv.image.layout import Layout
from outrigger_testenv.processes import free_ports
from outrigger_testenv.registry import Registry

COPY = ("skopeo", "--insecure-policy", "copy", "--preserve-digests", "--dest-tls-verify=false")


@pytest.fixture(scope="module")
def config(built, layout):
    """The image's configuration, found through its manifest."""
    manifest = blob(layout, built.image.digest)
    return blob(layout, manifest["config"]["digest"])


@pytest.fixture
def empty_registry(needs_image_tools, tmp_path):
    """A registry for one test."""
    made = Registry(tmp_path / "registry", free_ports(1)[0], tmp_path / "registry.log")
    made.start()
    yield made
    made.stop()


def blob(layout, digest):
    """A JSON document of the layout."""
    return json.loads(layout.joinpath("blobs", *digest.split(":")).read_bytes())


def test_two_builds_have_the_same_digests(built, layout, tmp_path):
    again = build(tmp_path / "again", built.image.size)
    assert again.image == built.image
    assert (tmp_path / "again" / "index.json").read_bytes() == (layout / "index.json").read_bytes()


def test_a_changed_file_changes_the_digest(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    digests = set()
    for content in ("one", "two", "two"):
        (root / "file").write_text(content)
        digests.add(Layout(tmp_path / "layout").image(root, {}, "tag").digest)
    assert len(digests) == 2


def test_one_that_is_too_large_is_no_image(monkeypatch, tmp_path):
    # The program does not matter here, and packing the real one takes 6 s of CPU.
    monkeypatch.setattr(building, "outrigger", lambda: Path("/bin/true"))
    with pytest.raises(TooLarge, match="MB compressed; 0 MB are the limit"):
        build(tmp_path / "image", 100_000)


def test_it_has_labels_and_the_command(config):
    assert (config["os"], config["architecture"]) in {("linux", "amd64"), ("linux", "arm64")}
    labels = config["config"].pop("Labels")
    prefix = "org.opencontainers.image."
    assert {each.removeprefix(prefix) for each in labels} == {
        "title",
        "description",
        "licenses",
        "version",
        "revision",
    }
    assert all(labels.values())
    assert config["config"] == {
        "User": "65532:65532",
        "ExposedPorts": {"9000/tcp": {}, "9080/tcp": {}, "9902/tcp": {}},
        "Env": ["PATH=/usr/local/bin", "MIMALLOC_ALLOW_THP=0"],
        "Entrypoint": ["outrigger"],
        "Cmd": ["serve"],
        "WorkingDir": "/",
    }


def test_it_holds_the_program_and_its_libraries_only(root):
    programs = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and path.stat().st_mode & 0o111
    }
    (onnxruntime,) = (root / "usr/local/lib/onnxruntime").glob("libonnxruntime.so.*")
    listed = ["ldd", outrigger(), onnxruntime]
    printed = subprocess.run(listed, capture_output=True, text=True, check=False)
    found = re.findall(r"(?:=>|^\s)\s*(/\S+)", printed.stdout, re.MULTILINE)
    libraries = {each.lstrip("/") for each in found}
    own = {sbom.BINARY, onnxruntime.relative_to(root).as_posix()}
    assert programs == own | libraries


def test_onnx_runtime_in_it_is_that_of_the_tests(root):
    (library,) = (root / "usr/local/lib/onnxruntime").iterdir()
    assert f"onnxruntime=={library.name.partition('.so.')[2]}" in (
        (repository() / "testenv" / "requirements.lock").read_text().splitlines()
    )
    assert (root / "licenses/onnxruntime/LICENSE").is_file()


def test_nothing_in_it_gives_rights_or_may_be_written_but_for_empty_directories(root):
    for path in root.rglob("*"):
        mode = path.lstat().st_mode
        assert not mode & (stat.S_ISUID | stat.S_ISGID), path
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode), path
        if mode & stat.S_IWOTH:
            assert mode & stat.S_ISVTX, path
            assert not list(path.iterdir()), path


def test_its_user_has_a_name(root):
    names = {
        line.split(":")[2]: line.split(":")[0]
        for line in (root / "etc/passwd").read_text().splitlines()
    }
    assert names["65532"] == "nonroot"


def test_it_holds_the_license_of_the_workspace(root):
    assert 'license = "Apache-2.0"' in (repository() / "Cargo.toml").read_text()
    license = (root / "licenses/LICENSE").read_bytes()
    assert license == (repository() / "LICENSE").read_bytes()
    assert license.split()[:4] == [b"Apache", b"License", b"Version", b"2.0,"]


def test_skopeo_pushes_it_with_its_bill_of_materials(built, layout, empty_registry):
    for tag in (built.tag, f"{built.tag}-sbom"):
        target = f"docker://{empty_registry.reference('outrigger', tag)}"
        subprocess.run([*COPY, f"oci:{layout}:{tag}", target], check=True)
    assert empty_registry.digest("outrigger", built.tag) == built.image.digest
    attached = json.loads(empty_registry.manifest("outrigger", f"{built.tag}-sbom")[0])
    assert attached["artifactType"] == sbom.MEDIA_TYPE
    assert attached["subject"]["digest"] == built.image.digest
    (content,) = attached["layers"]
    assert blob(layout, content["digest"]) == json.loads(built.sbom)


def test_the_layout_itself_lists_the_referrer(built, layout):
    listed = json.loads((layout / "index.json").read_text())["manifests"]
    subjects = [blob(layout, each["digest"]).get("subject") for each in listed]
    (subject,) = (each for each in subjects if each)
    assert subject["digest"] == built.image.digest
