"""Invalid packages are refused, each with its reason, and other models are not affected."""

import json
import tarfile

import pandas as pd
import pytest

from outrigger_testenv import images
from outrigger_testenv.client import Client
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.processes import ProcessError

METADATA = "data/metadata.json"
MODEL = "data/tensorflow_serving_model/model"
USERS = pd.DataFrame({"age": [30]})
OFFERS = pd.DataFrame({"price": [1.0, 2.0]})

pytestmark = pytest.mark.usefixtures("needs_registry")


@pytest.fixture(scope="module")
def neighbour(serving, tiny):
    """A valid model, which must be served whatever else is pushed."""
    return serving(tiny(7), "bad/neighbour")


@pytest.fixture(scope="module")
def good_files(reference):
    return images.files_of(reference.directory)


@pytest.fixture
def refused(request, stack, client, neighbour):
    """Pushes layers and returns the error of a request for them."""

    def push(*layers, timeout=30.0):
        model = "bad/" + request.node.name.removeprefix("test_").replace("[", "-").rstrip("]")
        images.push_layers(stack.registry, f"models/{model}", "latest", layers)
        with Client(stack.serve.target, timeout) as caller, pytest.raises(OutriggerError) as caught:
            caller.load(model)
        client.wait_until(
            lambda: client.model(model).versions[0].failure.reason == caught.value.reason,
            timeout=5,
            what="the listing does not say why",
        )
        return caught.value

    yield push
    served = client.predict("bad/neighbour", USERS, OFFERS)
    assert list(served["score"]) == [7, 7]
    assert set(served["digest"]) == {neighbour}


def without(files, *prefixes):
    return {name: body for name, body in files.items() if not name.startswith(prefixes)}


def with_metadata(files, change):
    content = json.loads(files[METADATA])
    change(content)
    return {**files, METADATA: json.dumps(content).encode()}


def test_no_metadata(refused, good_files):
    error = refused(images.tar(without(good_files, METADATA)))
    assert error.reason == "IMAGE_INVALID"
    assert "metadata.json" in error.message


def test_metadata_that_is_no_json(refused, good_files):
    error = refused(images.tar({**good_files, METADATA: b"{"}))
    assert error.reason == "IMAGE_INVALID"


def test_metadata_with_an_unknown_key_names_its_path(refused, good_files):
    files = with_metadata(good_files, lambda content: content["inputs"][0].update(colour="red"))
    error = refused(images.tar(files))
    assert error.reason == "IMAGE_INVALID"
    assert "inputs[0].colour" in error.message


def test_metadata_that_contradicts_the_signature_says_both(refused, good_files):
    def drop_a_feature(content):
        content["inputs"][1]["features"].pop()

    error = refused(images.tar(with_metadata(good_files, drop_a_feature)))
    assert error.reason == "IMAGE_INVALID"
    assert "19" in error.message
    assert "20" in error.message


def test_a_signature_input_that_nothing_feeds(refused, good_files):
    files = with_metadata(good_files, lambda content: content["inputs"].pop(0))
    error = refused(images.tar(files))
    assert error.reason == "IMAGE_INVALID"
    assert "user" in error.message


def test_no_saved_model(refused, good_files):
    error = refused(images.tar(without(good_files, MODEL)))
    assert error.reason == "IMAGE_INVALID"


def test_a_truncated_saved_model(refused, good_files):
    name = f"{MODEL}/saved_model.pb"
    error = refused(images.tar({**good_files, name: good_files[name][:-100]}))
    assert error.reason == "IMAGE_INVALID"


@pytest.mark.parametrize(
    "missing", ["variables", "variables/variables.index"], ids=["directory", "index"]
)
def test_missing_variables(refused, good_files, missing):
    error = refused(images.tar(without(good_files, f"{MODEL}/{missing}")))
    # The model loads, and fails its first request by a code that differs from run to run.
    assert error.reason == "GOLDEN_MISMATCH"


def test_truncated_variables(refused, good_files):
    name = f"{MODEL}/variables/variables.data-00000-of-00001"
    error = refused(images.tar({**good_files, name: good_files[name][:1000]}))
    assert error.reason in ("IMAGE_INVALID", "ENGINE_FAILED")


def endless(user, offer):
    """Never ends."""
    import tensorflow as tf

    # A square is never negative, but TensorFlow does not infer that.
    rounds = tf.while_loop(
        lambda at: tf.reduce_all(at * at >= 0.0), lambda at: [tf.sin(at + 1.0)], [user]
    )
    return offer[:, :, 0] + rounds[0]


def test_a_model_whose_first_request_never_ends(refused, package):
    # It has two attempts of half a minute each.
    error = refused(images.tar(images.files_of(package(endless).directory)), timeout=150.0)
    assert error.reason == "GOLDEN_MISMATCH"
    assert "the model did not answer within 30 s" in error.message


def test_golden_cases_that_do_not_hold(refused, good_files):
    case = json.loads(good_files["data/golden.jsonl"].splitlines()[0])
    case["expected"]["scores"][0] += 0.5
    files = {**good_files, "data/golden.jsonl": json.dumps(case).encode() + b"\n"}
    assert refused(images.tar(files)).reason == "GOLDEN_MISMATCH"


def entry(name, kind, target=""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


HOSTILE = {
    "dotdot": entry("data/../../escaped", tarfile.DIRTYPE),
    "symlink": entry("data/link", tarfile.SYMTYPE, "/etc"),
    "relative-symlink": entry("data/link", tarfile.SYMTYPE, "../../../etc/passwd"),
    "hardlink": entry("data/link", tarfile.LNKTYPE, "../../etc/passwd"),
    "device": entry("data/device", tarfile.CHRTYPE),
    "fifo": entry("data/fifo", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_layer(refused, stack, good_files, kind):
    error = refused(images.tar(good_files, [HOSTILE[kind]]))
    assert error.reason == "IMAGE_INVALID"


def test_a_layer_that_is_no_archive(refused, good_files):
    error = refused(images.tar(good_files), b"this is not a tar archive" * 100)
    assert error.reason == "IMAGE_INVALID"


def test_a_layer_with_another_digest(refused, stack, good_files):
    layer = images.tar({**good_files, "data/tampered": b"before"})
    digest = stack.registry.put_blob("models/bad/tampered", layer)
    stack.registry.tamper(digest, layer.replace(b"before", b"behind"))
    assert refused(layer).reason == "IMAGE_INVALID"


def test_a_failed_model_is_repaired_by_the_next_push(stack, client, reference, good_files):
    model = "bad/repaired"
    files = without(good_files, METADATA)
    images.push_files(stack.registry, f"models/{model}", "latest", files)
    with pytest.raises(OutriggerError):
        client.load(model)
    digest = stack.push(reference, model)
    client.wait_until_serving(model, digest)


def test_a_bad_new_version_leaves_the_old_one_serving(
    stack, client, serving, reference, good_files
):
    model = "bad/update"
    first = serving(reference, model)
    files = without(good_files, METADATA)
    second = images.push_files(stack.registry, f"models/{model}", "latest", files)
    client.wait_until(
        lambda: any(
            version.digest == second and version.failure.reason
            for version in client.model(model).versions
        )
    )
    assert client.serving_digest(model) == first


def test_an_image_outside_of_the_allowed_prefixes(own_stack, tiny):
    stack = own_stack(start=False)
    stack.serve.config["images"]["allowed"] = [f"{stack.images}/team"]
    stack.start()
    stack.push(tiny(1), "team-evil/model")
    stack.push(tiny(2), "team/model")
    client = stack.client()
    with pytest.raises(OutriggerError) as caught:
        client.load("team-evil/model")
    assert caught.value.reason == "IMAGE_NOT_ALLOWED"
    assert list(client.predict("team/model", USERS, OFFERS)["score"]) == [2, 2]


def test_a_listed_model_outside_of_the_allowed_prefixes_is_found_at_the_start(own_stack):
    stack = own_stack(start=False)
    stack.serve.config["images"]["allowed"] = [f"{stack.images}/team"]
    stack.serve.config["models"] = [{"name": "x", "image": f"{stack.images}/team-evil/x"}]
    with pytest.raises(ProcessError, match=r"ended with 64(.|\n)*models\[0\].image"):
        stack.serve.start()
