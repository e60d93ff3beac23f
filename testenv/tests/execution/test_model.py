"""Stage 3, execution: tests a model directory before its release, with the real binaries.

`make validate-model MODEL=dir` runs this stage on your own model.
"""

import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from outrigger_testenv import requests
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.client import request, selector
from outrigger_testenv.features import PER_TREATMENT, SEED, TREATMENT, USER
from outrigger_testenv.packing import pack
from outrigger_testenv.reference import reference_model
from outrigger_testenv.samples import sample
from outrigger_testenv.stack import library

NAME = "candidate"
CALLS = 200


@pytest.fixture(scope="module")
def package(request, tmp_path_factory):
    """The package under validation."""
    given = request.config.getoption("--model")
    if given:
        return ModelPackage(Path(given).resolve())
    return reference_model(tmp_path_factory.mktemp("candidate"))


@pytest.fixture(scope="module")
def digest(package, serving):
    """The digest of the served model, which has passed the server's checks and the golden gate."""
    return serving(package, NAME)


@pytest.fixture(scope="module")
def comparable(package):
    """Skips models that draw at random, whose scores cannot be compared."""
    if not package.metadata.deterministic:
        pytest.skip("the model is not deterministic")
    if any(each.entity == SEED for each in package.metadata.inputs):
        pytest.skip("the model takes a seed")


def golden_cases(package):
    file = package.directory / "golden.jsonl"
    if not file.is_file():
        pytest.skip("there is no golden.jsonl: nothing to hold the scores against")
    return [json.loads(line) for line in file.read_text().splitlines() if line.strip()]


def asked(package, rows, seed=1):
    """A random user and treatments, as frames and as a message."""
    users = sample(package.metadata, USER, 1, seed)
    offers = sample(package.metadata, TREATMENT, rows, seed)
    message = request(next(requests.rows(users)), offers, requests.KEY_VALUE)
    message.model.CopyFrom(selector(NAME))
    return users, offers, message


def test_outrigger_validate_accepts_the_directory(package):
    command = [str(outrigger()), "validate", str(package.directory)]
    environment = {**os.environ, **library()}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_becomes_available(package, client, digest):
    version = next(each for each in client.model(NAME).versions if each.digest == digest)
    assert version.state == version.STATE_AVAILABLE
    assert not version.failure.reason


def test_golden_cases_hold(package, stack, digest):
    for number, case in enumerate(golden_cases(package), 1):
        body = {**case["request"], "model": {"name": NAME, "digest": digest}}
        call = urllib.request.Request(
            f"{stack.serve.http}/v1/predict",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(call, timeout=30) as answer:
            served = json.load(answer)
        limits = {"rtol": case.get("rtol", 1e-4), "atol": case.get("atol", 1e-5)}
        expected = case["expected"]
        if "scores" in expected:
            scores = [row["score"] for row in served["scores"]]
        else:
            scores, expected = served["score"], {"scores": expected["score"]}
        np.testing.assert_allclose(
            scores, expected["scores"], err_msg=f"golden case {number}", **limits
        )


@pytest.mark.usefixtures("digest", "comparable")
@pytest.mark.parametrize("rows", [1, 7, 100])
def test_tensors_are_the_bytes_of_pack(package, client, rows):
    users, offers, message = asked(package, rows, seed=rows)
    tensors, _ = client.explain(message)
    own = pack(package.metadata, users, offers)
    assert tensors.keys() == own.keys()
    for name, tensor in tensors.items():
        assert tensor.shape == own[name].shape, name
        assert tensor.tolist() == own[name].tolist() or tensor.tobytes() == own[name].tobytes(), (
            name
        )


@pytest.mark.usefixtures("digest", "comparable")
@pytest.mark.parametrize("rows", [1, 7, 100])
def test_scores_are_tensorflows(package, client, rows):
    users, offers, message = asked(package, rows, seed=rows)
    answer = client.call(message)
    own = package.score(users, offers)[0]
    per_treatment = package.metadata.outputs[0].kind == PER_TREATMENT
    served = list(answer.scores.values) if per_treatment else [answer.score]
    np.testing.assert_allclose(served, own, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("digest")
@pytest.mark.parametrize("rows", [1, 100, 1000])
def test_latency_is_measured(package, client, rows, capsys):
    _, _, message = asked(package, rows)
    client.call(message)
    took = []
    for _ in range(CALLS):
        start = time.perf_counter()
        client.call(message)
        took.append(1000 * (time.perf_counter() - start))
    p50, p99 = np.percentile(took, [50, 99])
    size = message.ByteSize() / 1024
    with capsys.disabled():
        print(
            f"\n  {rows:>5} treatments ({size:.0f} KB): p50 {p50:.2f} ms, p99 {p99:.2f} ms", end=""
        )
    assert len(took) == CALLS
