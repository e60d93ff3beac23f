"""Images that must be signed, in a real registry."""

import json
import shutil
from pathlib import Path

import pytest

from outrigger_testenv.cosigned import NO_SERVICES, Cosign
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.reference import reference_frames
from outrigger_testenv.signing import Signer

pytestmark = pytest.mark.usefixtures("needs_registry")
REPOSITORY = "models/signed/churn"


@pytest.fixture
def signer(tmp_path):
    return Signer(tmp_path / "cosign.pub")


@pytest.fixture
def signed_stack(own_stack, signer):
    """A stack that serves images under models/signed only if they are signed, and all others."""
    stack = own_stack(start=False)
    rule = {"prefix": f"{stack.images}/signed", "keys": [str(signer.public)]}
    stack.serve.config["images"]["signatures"] = [rule]
    return stack.start()


def refusal(client, model, tag=None):
    with pytest.raises(OutriggerError) as caught:
        client.predict(model, *reference_frames(1, 2), tag=tag)
    return caught.value


def served(client):
    """Waits until the signed model is served; returns its digest."""
    return set(client.predict("signed/churn", *reference_frames(1, 2))["digest"])


def verifications(stack, outcome):
    name = f'outrigger_signature_verifications_total{{outcome="{outcome}"}}'
    return stack.serve.metrics().get(name, 0)


def test_only_versions_signed_by_the_right_key_are_served(
    signed_stack, signer, reference, tmp_path
):
    stack, client = signed_stack, signed_stack.client()
    digest = stack.push(reference, "signed/churn")
    stack.push(reference, "free/churn")
    users, treatments = reference_frames(1, 5)
    # The same files are in the store for another name, which needs no signature.
    assert set(client.predict("free/churn", users, treatments)["digest"]) == {digest}
    assert refusal(client, "signed/churn").reason == "SIGNATURE_MISSING"

    Signer(tmp_path / "stranger.pub").sign(stack.registry, REPOSITORY, digest)
    client.wait_until(
        lambda: refusal(client, "signed/churn").reason == "SIGNATURE_INVALID",
        what="the stranger's signature is seen",
    )
    signer.sign(stack.registry, REPOSITORY, digest)
    client.wait_until_serving("signed/churn", digest)
    assert served(client) == {digest}
    assert verifications(stack, "SIGNATURE_MISSING") > 0
    assert verifications(stack, "SIGNATURE_INVALID") > 0
    assert verifications(stack, "found") == 1


@pytest.fixture
def cosign(tmp_path):
    """cosign 3, with a configuration that keeps it off the network."""
    binary = shutil.which("cosign")
    if binary is None:
        pytest.skip("cosign is not installed; what it made is in crates/oci/tests/data/cosign")
    directory = tmp_path / "cosign"
    directory.mkdir()
    (directory / "offline.json").write_text(json.dumps(NO_SERVICES))
    return Cosign(Path(binary), directory)


@pytest.mark.parametrize(
    "options",
    [
        ["--signing-config=offline.json"],
        ["--signing-config=offline.json", "--annotations=stage=live"],
        ["--new-bundle-format=false", "--use-signing-config=false", "--tlog-upload=false"],
    ],
    ids=["bundle", "annotated", "tag"],
)
def test_signatures_made_by_cosign_itself_are_accepted(own_stack, cosign, reference, options):
    key = cosign.generate_key_pair("cosign")
    cosign.generate_key_pair("stranger")
    stack = own_stack(start=False)
    rule = {"prefix": f"{stack.images}/signed", "keys": [str(key)]}
    stack.serve.config["images"]["signatures"] = [rule]
    client = stack.start().client()
    digest = stack.push(reference, "signed/churn")
    image = f"{stack.registry.host}/{REPOSITORY}@{digest}"
    assert refusal(client, "signed/churn").reason == "SIGNATURE_MISSING"
    cosign.sign(image, *options, key="stranger")
    client.wait_until(
        lambda: refusal(client, "signed/churn").reason == "SIGNATURE_INVALID",
        what="the stranger's signature is seen",
    )
    cosign.sign(image, *options)
    client.wait_until_serving("signed/churn", digest)
    assert served(client) == {digest}


def test_a_bundle_signs_as_well(signed_stack, signer, reference):
    stack, client = signed_stack, signed_stack.client()
    digest = stack.push(reference, "signed/churn")
    signer.attach(stack.registry, REPOSITORY, digest)
    assert served(client) == {digest}


def test_a_signature_is_of_one_digest_and_a_version_without_one_stays_away(
    signed_stack, signer, reference, tiny
):
    stack, client = signed_stack, signed_stack.client()
    first = stack.push(reference, "signed/churn")
    signer.sign(stack.registry, REPOSITORY, first)
    assert served(client) == {first}
    # The next version has the first one's signature under its tag.
    other = tiny(0.5)
    second = stack.push(other, "signed/churn", "next")
    signature = stack.registry.digest(REPOSITORY, f"{first.replace(':', '-')}.sig")
    stack.registry.tag(REPOSITORY, signature, f"{second.replace(':', '-')}.sig")
    refused = refusal(client, "signed/churn", "next")
    assert refused.reason == "SIGNATURE_INVALID"
    assert first in refused.message
    stack.registry.tag(REPOSITORY, second, "latest")
    client.wait_until(
        lambda: any(
            version.digest == second and version.failure.reason == "SIGNATURE_INVALID"
            for version in client.model("signed/churn").versions
        ),
        what="the new version is refused",
    )
    assert served(client) == {first}


def test_verified_versions_are_served_with_the_registry_down(signed_stack, signer, reference):
    stack, client = signed_stack, signed_stack.client()
    digest = stack.push(reference, "signed/churn")
    signer.sign(stack.registry, REPOSITORY, digest)
    assert served(client) == {digest}
    # The journal is written concurrently with the answer, and the tag last.
    record = stack.directory / "store" / "journal" / "record.json"
    tags = {"signed/churn": {"latest": digest}}
    client.wait_until(
        lambda: record.exists() and json.loads(record.read_text())["tags"] == tags,
        what="the journal has the tag",
    )
    stack.serve.process.kill()
    stack.engine.process.kill()
    stack.registry.stop()
    stack.engine.start()
    stack.serve.start()
    assert served(stack.client()) == {digest}
    assert verifications(stack, "kept") > 0
    assert verifications(stack, "found") == 0


def test_a_key_that_is_withdrawn_takes_its_models_down(signed_stack, signer, reference, tmp_path):
    stack, client = signed_stack, signed_stack.client()
    digest = stack.push(reference, "signed/churn")
    signer.sign(stack.registry, REPOSITORY, digest)
    assert served(client) == {digest}
    next_signer = Signer(tmp_path / "next.pub")
    signer.public.write_bytes(next_signer.public.read_bytes())

    def refused():
        try:
            client.predict("signed/churn", *reference_frames(1, 2))
        except OutriggerError as error:
            return error.reason == "SIGNATURE_INVALID"
        return False

    client.wait_until(refused, what="the models of the old key are taken down")
    next_signer.sign(stack.registry, REPOSITORY, digest)
    client.wait_until_serving("signed/churn", digest)
