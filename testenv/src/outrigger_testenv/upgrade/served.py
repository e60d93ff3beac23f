"""A store of the previous version, with the answers that it gave.

The fixtures' `README.md` describes the models and their history.
"""

import json
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from outrigger.v1 import prediction_pb2 as pb
from outrigger_testenv import variants
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.client import request, selector
from outrigger_testenv.everything import everything
from outrigger_testenv.features import TREATMENT, USER
from outrigger_testenv.jsonform import http_request
from outrigger_testenv.load import Load
from outrigger_testenv.requests import rows
from outrigger_testenv.samples import sample
from outrigger_testenv.signing import Signer
from outrigger_testenv.stack import Stack
from outrigger_testenv.upgrade.places import SERVED, STORE

PUBLIC_KEY = SERVED / "cosign.pub"
ANSWERS = SERVED / "answers.json"
MODELS = SERVED / "models.json"
TAGS = SERVED / "tags.json"
CANARIES = SERVED / "canaries.json"

SIGNED = "signed"
# Models that take the same requests, with the features of variants.tiny_builder.
TINY = ("churn", "signed/loyalty", "pinned", "upsell", "offers", "retention", "winback")
ON_TRIAL, ABORTED, PROMOTED = "offers", "retention", "winback"
_CANARIES = (ON_TRIAL, ABORTED, PROMOTED)
# Settings of canaries that are not decided by evidence within the test.
_PATIENT = {"minimum_time": "3600s", "warm_up": {"requests": 200}, "ramp": {"share": 0.3}}
_SPLIT = 100
_TIMEOUT = 60.0

Json = dict[str, Any]


def configure(stack: Stack, models: list[Json], public_key: Path) -> None:
    """Configures a stack that has not started as the one whose store is kept."""
    config = stack.serve.config
    config["models"] = models
    rule = {"prefix": f"{stack.images}/{SIGNED}", "keys": [str(public_key)]}
    config["images"]["signatures"] = [rule]


def ask(stack: Stack, body: Json) -> Json:
    """The answer to a prediction over HTTP."""
    content = json.dumps(body).encode()
    question = urllib.request.Request(f"{stack.serve.http}/v1/predict", content)
    with urllib.request.urlopen(question, timeout=_TIMEOUT) as answer:
        return json.load(answer)


def tags(stack: Stack) -> dict[str, dict[str, str]]:
    """For each model, the digest that serves each tag."""
    models = stack.client().models().values()
    return {
        model.name: {tag.name: tag.serving_digest for tag in model.tags if tag.serving_digest}
        for model in sorted(models, key=lambda model: model.name)
    }


def canaries(stack: Stack) -> dict[str, Json]:
    """`outrigger canary status` of the models that had a canary."""
    return {model: json.loads(canary(stack, "status", model, "-o", "json")) for model in _CANARIES}


def canary(stack: Stack, *arguments: str) -> str:
    """`outrigger canary` on the stack's server."""
    done = stack.serve.run("canary", *arguments)
    done.check_returncode()
    return done.stdout


def on_canary(status: Json) -> int:
    """The number of requests that the canary on trial received."""
    verdicts = (each.get("verdict", {}) for each in status.get("canaries", []))
    return sum(int(each.get("canary_requests", 0)) for each in verdicts)


def write() -> None:
    """Writes the store and its recorded answers again, with the binary in OUTRIGGER_BIN."""
    with tempfile.TemporaryDirectory() as directory, Stack(start=False) as stack:
        SERVED.mkdir(exist_ok=True)
        Maker(stack, Path(directory)).run()
        if stack.serve.process.stop() != 0:
            raise RuntimeError(f"the server ended badly{stack.serve.process.tail()}")
        keep(stack.directory / "store")


def keep(store: Path) -> None:
    """Copies a store without the files that git cannot hold or that a server creates again."""
    shutil.rmtree(STORE, ignore_errors=True)
    # Relative links stay links.
    shutil.copytree(store, STORE, symlinks=True, ignore=shutil.ignore_patterns("lock"))
    for directory in sorted(STORE.rglob("*"), reverse=True):
        if directory.is_dir() and not directory.is_symlink() and not any(directory.iterdir()):
            directory.rmdir()


class Maker:
    """Runs a stack through the events that the store should remember."""

    def __init__(self, stack: Stack, directory: Path):
        self.stack = stack
        self.directory = directory
        self.signer = Signer(PUBLIC_KEY)
        self.kitchen = everything(directory / "kitchen")
        self.pinned = ""

    def run(self) -> None:
        """Pushes, serves, tries canaries, and records the results."""
        self.stack.registry.start()
        self.push()
        models = [
            {"name": "churn", "preload": True},
            {"name": "kitchen", "tag": "stable", "preload": True},
            {"name": "signed/loyalty", "preload": True},
            {"name": "pinned", "digest": self.pinned},
            {"name": ON_TRIAL, "preload": True},
        ]
        configure(self.stack, models, PUBLIC_KEY)
        self.stack.engine.start()
        self.stack.serve.start()
        for model in TINY:
            self.stack.client().load(model)
        self.try_canaries()
        record(MODELS, models)
        record(ANSWERS, [{"request": each, "response": self.answer(each)} for each in self.asked()])
        record(TAGS, tags(self.stack))
        record(CANARIES, canaries(self.stack))

    def push(self) -> None:
        """Pushes the live versions to the registry."""
        offers = pd.DataFrame({"price": [1.0, -2.0]}, index=["a", "b"])
        users = pd.DataFrame({"age": [30.0, 50.0]}, index=["u", "v"])
        churn = self.build(variants.good, "churn")
        churn.write_golden(users, offers)
        churn.write_profile(users, offers)
        self.stack.push(churn, "churn")
        self.stack.push(self.kitchen, "kitchen", "stable")
        loyalty = self.stack.push(self.scoring(2), "signed/loyalty")
        self.signer.sign(self.stack.registry, "models/signed/loyalty", loyalty)
        self.pinned = self.stack.push(self.scoring(3), "pinned", "old")
        self.stack.push(self.scoring(4), "upsell")
        for model in _CANARIES:
            self.stack.push(self.build(variants.good, f"{model}-live"), model)

    def try_canaries(self) -> None:
        """Leaves one canary on trial, one aborted, and one promoted for this process only."""
        with Load(self.stack.serve.target, requests(), self.directory) as load:
            for model in _CANARIES:
                mode = "MODE_LOCAL" if model == PROMOTED else "MODE_REGISTRY"
                labels = {"dev.outrigger.canary": json.dumps({**_PATIENT, "mode": mode})}
                package = self.build(variants.better, f"{model}-canary")
                self.stack.push(package, model, "latest_canary", labels)
            for model in _CANARIES:
                self.wait_for(model, lambda status: on_canary(status) >= _SPLIT)
            canary(self.stack, "abort", ABORTED, "--by", "ada", "--reason", "wrong data")
            canary(self.stack, "promote", PROMOTED, "--by", "ada", "--reason", "good enough")
            for model in (ABORTED, PROMOTED):
                self.wait_for(model, lambda status: status.get("decisions"))
            report = load.stop()
        if report.failed:
            raise RuntimeError(f"{report}: {report.first_errors}")

    def wait_for(self, model: str, holds: Callable[[Json], Any]) -> None:
        """Returns once the model's canary status is as it should be."""
        deadline = time.monotonic() + _TIMEOUT
        while not holds(status := json.loads(canary(self.stack, "status", model, "-o", "json"))):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{model}: {status}")
            time.sleep(0.1)

    def asked(self) -> Iterator[Json]:
        """One request for each model, and for each arm of the canary on trial."""
        user = next(rows(sample(self.kitchen.metadata, USER, 1, seed=4)))
        body = http_request(user, sample(self.kitchen.metadata, TREATMENT, 5, seed=5))
        yield {"model": {"name": "kitchen"}, **body}
        user, offers = {"age": 41.0}, pd.DataFrame({"price": [0.5, -3.0, 8.25]}, index=list("abc"))
        for model in TINY:
            if model != ON_TRIAL:
                yield {"model": {"name": model}, **http_request(user, offers)}
        for tag in ("latest", "latest_canary"):
            digest = self.stack.registry.digest(f"models/{ON_TRIAL}", tag)
            chosen = {"name": ON_TRIAL, "digest": digest}
            yield {"model": chosen, **http_request(user, offers)}

    def answer(self, body: Mapping[str, Any]) -> Json:
        """The server's answer to it."""
        return ask(self.stack, dict(body))

    def build(self, function: Callable[..., Any], name: str) -> ModelPackage:
        """A tiny model that scores by a function."""
        return variants.tiny_builder().build(function, self.directory / name)

    def scoring(self, score: float) -> ModelPackage:
        """A tiny model that gives every treatment one score."""
        return variants.tiny(self.directory / f"scoring-{score}", score)


def requests() -> Iterator[pb.PredictRequest]:
    """Requests of many users, in turn for each model that gets a canary."""
    draw = np.random.default_rng(1)
    for at in range(1800):
        offers = pd.DataFrame({"price": draw.normal(0, 3, 3).astype("float32")})
        message = request({"age": int(draw.integers(18, 80))}, offers, key=f"user-{at // 3}")
        message.model.CopyFrom(selector(_CANARIES[at % 3]))
        yield message


def record(path: Path, content: Any) -> None:
    """Writes JSON that a person can read."""
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
