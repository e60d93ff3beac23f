"""Images made by other tools, and images without a registry."""

import subprocess

import numpy as np
import pytest

from outrigger_testenv.reference import reference_frames

CLOSE = {"rtol": 1e-4, "atol": 1e-6}


COPY = ("skopeo", "--insecure-policy", "copy")


def run(*command):
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


def umoci_image(package, directory):
    """Builds an image of a package with umoci; returns the layout."""
    layout = directory / "layout"
    run("umoci", "init", "--layout", layout)
    image = f"{layout}:latest"
    run("umoci", "new", "--image", image)
    for name in ("metadata.json", "golden.jsonl", "tensorflow_serving_model"):
        run("umoci", "insert", "--image", image, package.directory / name, f"/data/{name}")
    run("umoci", "config", "--image", image, "--config.label", "made.by=umoci")
    return layout


@pytest.mark.usefixtures("needs_image_tools")
@pytest.mark.parametrize("form", ["oci", "v2s2"])
def test_an_image_of_umoci_and_skopeo_is_served(stack, client, reference, tmp_path, form):
    layout = umoci_image(reference, tmp_path)
    model = f"foreign/{form}"
    target = f"docker://{stack.reference(model)}"
    run(
        *COPY,
        "--format",
        form,
        "--dest-tls-verify=false",
        f"oci:{layout}:latest",
        target,
    )
    users, treatments = reference_frames(3, 20)
    scores = client.predict(model, users, treatments)
    own = np.concatenate(reference.score(users, treatments))
    np.testing.assert_allclose(scores["score"], own, **CLOSE)
    assert set(scores["digest"]) == {stack.registry.digest(f"models/{model}", "latest")}


@pytest.mark.usefixtures("needs_image_tools")
def test_zstd_layers_are_unpacked(stack, client, reference, tmp_path):
    layout = umoci_image(reference, tmp_path)
    packed = f"oci:{tmp_path / 'zstd'}:latest"
    zstd = ["--dest-compress", "--dest-compress-format", "zstd"]
    run(*COPY, *zstd, f"oci:{layout}:latest", packed)
    target = f"docker://{stack.reference('foreign/zstd')}"
    run(*COPY, "--preserve-digests", "--dest-tls-verify=false", packed, target)
    manifest, _ = stack.registry.manifest("models/foreign/zstd", "latest")
    assert b"tar+zstd" in manifest
    users, treatments = reference_frames(1, 5)
    scores = client.predict("foreign/zstd", users, treatments)
    np.testing.assert_allclose(scores["score"], reference.score(users, treatments)[0], **CLOSE)


def test_a_layout_directory_needs_no_registry(own_stack, reference, tiny):
    stack = own_stack(with_registry=False)
    client = stack.client()
    digest = stack.push(reference, "local")
    users, treatments = reference_frames(2, 10)
    scores = client.predict("local", users, treatments)
    assert set(scores["digest"]) == {digest}
    own = np.concatenate(reference.score(users, treatments))
    np.testing.assert_allclose(scores["score"], own, **CLOSE)
    client.wait_until_serving("local", stack.push(tiny(1), "local"))


def test_the_same_directory_has_the_same_digest(own_stack, reference):
    stack = own_stack(start=False)
    if stack.registry:
        stack.registry.start()
    first = stack.push(reference, "same", "a")
    assert stack.push(reference, "same", "b") == first
