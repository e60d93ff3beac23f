"""Runs the image read-only, without rights, as a user that it does not list."""

import os
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from outrigger_testenv import authority, variants
from outrigger_testenv.chart.user import ARBITRARY_USER
from outrigger_testenv.image import sandbox
from outrigger_testenv.processes import free_ports
from outrigger_testenv.registry import Registry
from outrigger_testenv.stack import Stack
from outrigger_testenv.tools import needs

pytestmark = pytest.mark.usefixtures("needs_sandbox")


def run(root, *arguments):
    """Runs the image's program with arguments, to its end."""
    command = sandbox.command(root, *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def secured(place):
    """A registry with HTTPS only, and a certificate of an authority of its own."""
    needs("openssl", "docker-registry")
    made = authority.certificate(place / "tls", "127.0.0.1")
    log = place / "registry.log"
    registry_ = Registry(place / "registry", free_ports(1)[0], log, made)
    registry_.start()
    yield registry_, made
    registry_.stop()


@pytest.fixture(scope="module")
def stack(root, secured, tmp_path_factory):
    """The image as control plane of an engine and the secured registry, with a preloaded model."""
    registry_, certificate = secured
    images = {"repository": f"{registry_.host}/models", "ca_file": str(certificate.authority)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTRIGGER_CA", str(certificate.authority))
        package = variants.tiny(tmp_path_factory.mktemp("tiny"), 0.25)
        package.push(f"{images['repository']}/churn:latest")
    preloaded = [{"name": "churn", "preload": True}]
    with Stack({"images": {**images, "allowed": []}}, preloaded, False, start=False) as made:
        # Permissions as of a pod's volumes, for a user that is not root.
        made.directory.chmod(0o755)
        (made.directory / "store").mkdir(mode=0o777)
        (made.directory / "store").chmod(0o777)
        mounts = [made.directory, certificate.authority.parent]
        serve = made.serve.process
        serve.command = sandbox.command(root, "serve", "--config", made.serve.file, mounts=mounts)
        made.engine.start()
        Path(made.engine.endpoint.removeprefix("unix:")).chmod(0o777)
        made.serve.start()
        yield made


def test_it_prints_its_version(root):
    done = run(root, "--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "outrigger"), done.stderr


def test_its_default_arguments_serve(root):
    further = ("--set=images.repository=registry.example/team", "--check-config")
    done = run(root, *sandbox.default_arguments(root), *further)
    assert (done.returncode, done.stdout) == (0, "the configuration is valid\n"), done.stderr


def test_it_has_no_shell(root):
    inside = sandbox.command(root)[:-1]
    for shell in ("sh", "bash", "/bin/sh", "busybox"):
        done = subprocess.run([*inside, shell], capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert "No such file or directory" in done.stderr


def test_its_authorities_are_found(root, secured):
    registry_, _ = secured
    # The test's authority is not trusted here, so the answer must be refused. If no authority at
    # all had been found, that would be reported instead.
    done = run(root, "inspect", f"{registry_.host}/models/churn:latest")
    assert done.returncode == 1
    assert "certificate" in done.stderr
    assert "no certificate authorities" not in done.stderr


def test_it_is_healthy_and_scores_with_a_model_pulled_over_tls(stack):
    assert stack.serve.get("/healthz")[0] == 200
    assert stack.serve.get("/readyz")[0] == 200
    users, offers = pd.DataFrame({"age": [30]}), pd.DataFrame({"price": [1.0, 2.0]})
    assert list(stack.client().predict("churn", users, offers)["score"]) == [0.25, 0.25]


def test_it_has_an_arbitrary_user_no_rights_and_a_root_that_is_read_only(stack):
    outer = stack.serve.process.pid
    (inner,) = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
    status = Path(f"/proc/{inner}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    user = ARBITRARY_USER if os.geteuid() == 0 else os.geteuid()
    assert fields["Uid"].split() == [str(user)] * 4
    assert int(fields["CapEff"], 16) == 0
    mounts = map(str.split, Path(f"/proc/{inner}/mountinfo").read_text().splitlines())
    (options,) = (each[5] for each in mounts if each[4] == "/")
    assert "ro" in options.split(",")
