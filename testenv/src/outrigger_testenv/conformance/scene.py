"""An engine with the models of a run of the suite, whose configuration it owns."""

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
from tensorflow_serving.apis import model_pb2
from tensorflow_serving.config import model_server_config_pb2

from outrigger_testenv.conformance import models
from outrigger_testenv.conformance.client import (
    TIMEOUT,
    Config,
    EngineClient,
    Inputs,
    Spec,
    finished,
    outcome,
    predicted,
    state,
)

# Time after which something that has not happened is taken as not happening: three polls of the
# base paths.
STILL = 3.0
# Time after which a removed version has also left the engine's own lists, which no call shows.
_FLUSH = 0.5
_LOOK_EVERY = 0.02
# The model that most rows call, and its version.
BASE, VERSION = "base", 123
X = {"x": [[2.0]]}

ModelConfig = model_server_config_pb2.ModelConfig


class Scene:
    """An engine, and a directory that it sees under the same path.

    Models have names of their own in each run, because an engine never forgets a version. Use it
    as a context manager: at its end the engine is sent an empty list, and the directory is removed.
    `batches` is True if the engine batches requests.
    """

    def __init__(self, address: str, directory: Path):
        self.client = EngineClient(address)
        self._run = uuid.uuid4().hex[:6]
        self.directory = directory.resolve() / f"conformance-{self._run}"
        self._configured: dict[str, ModelConfig] = {}
        self.batches = False

    def __enter__(self) -> "Scene":
        self.directory.mkdir(parents=True)
        try:
            self.write(BASE, f"{VERSION:08}", models.arithmetic)
            began = self.add(BASE)
            if began != "OK":
                raise RuntimeError(f"the engine does not serve the first model: {began}")
            # An engine that batches requests refuses those without inputs.
            self.batches = "at least one input" in self.predict(self.spec(BASE, "constant"), {})
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._configured.clear()
        self.push(timeout=STILL)
        self._close()

    def _close(self) -> None:
        self.client.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    # Models and their files.

    def name(self, short: str) -> str:
        """The name in the engine of a model of this run."""
        return f"{self._run}-{short}"

    def base_path(self, short: str) -> Path:
        """The directory of a model's versions."""
        return self.directory / short

    def write(self, short: str, version: int | str, build: models.Build) -> Path:
        """Writes a version beside its base path and publishes it by rename."""
        staged = self.directory / f".staged-{short}-{version}"
        build(staged)
        target = self.base_path(short) / str(version)
        target.parent.mkdir(exist_ok=True)
        return staged.rename(target)

    def latch(self, short: str) -> Path:
        """The latch of a model that waits."""
        return self.directory / f"{short}.latch"

    @contextmanager
    def waiting_load(self, short: str, version: int = 1) -> Iterator[Callable[[], None]]:
        """A version whose load waits until the function that is yielded has been called, or else
        until the end.
        """
        latch = self.latch(f"{short}-{version}")
        self.write(short, version, models.waiting_load(latch))
        try:
            yield models.released(latch).touch
        finally:
            models.released(latch).touch()

    @contextmanager
    def waiting_run(self, short: str) -> Iterator[Callable[[], str]]:
        """A Predict call that waits in a model built by `models.waiting`. The function that is
        yielded lets it end, and returns its result.
        """
        latch = self.latch(f"{short}-run")
        call = self.client.predict(self.spec(short, "wait"), {"latches": [str(latch)]}, ["rounds"])
        self.wait_for(models.began(latch).exists, "the run has not begun")

        def end() -> str:
            models.released(latch).touch()
            return finished(call)

        try:
            yield end
        finally:
            end()

    # Configurations.

    def config(self, *further: ModelConfig) -> Config:
        """The configuration in force, with further models."""
        config = Config()
        config.model_config_list.SetInParent()
        config.model_config_list.config.extend([*self._configured.values(), *further])
        return config

    def model(self, short: str, **settings: Any) -> ModelConfig:
        """A model's part of a configuration: `versions` is a list of versions, "all" or a number of
        the latest ones; other settings are fields.
        """
        versions, labels = settings.pop("versions", None), settings.pop("labels", {})
        fields = {"base_path": str(self.base_path(short)), "model_platform": "tensorflow"}
        model = ModelConfig(name=self.name(short), **{**fields, **settings})
        policy = model.model_version_policy
        if versions == "all":
            policy.all.SetInParent()
        elif isinstance(versions, int):
            policy.latest.num_versions = versions
            policy.latest.SetInParent()
        elif versions is not None:
            policy.specific.versions.extend(versions)
        for label, version in labels.items():
            model.version_labels[label] = version
        return model

    def push(self, *, timeout: float = TIMEOUT) -> str:
        """Sends the configuration, and waits for the answer: "OK" or the error."""
        return finished(self.client.reload(self.config(), timeout=timeout))

    def expect(self, short: str, **settings: Any) -> None:
        """Adds a model to the configuration, or changes it, without sending it."""
        self._configured[short] = self.model(short, **settings)

    def begin_add(self, short: str, timeout: float = TIMEOUT, **settings: Any) -> grpc.Future:
        """Sends the configuration with a model added or changed, without waiting."""
        self.expect(short, **settings)
        return self.client.reload(self.config(), timeout=timeout)

    def add(self, short: str, **settings: Any) -> str:
        """Sends the configuration with a model added or changed: "OK" or the error."""
        self.expect(short, **settings)
        return self.push()

    def refused(self, *further: ModelConfig) -> str:
        """Sends a configuration that should be refused, and which is not kept."""
        return finished(self.client.reload(self.config(*further)))

    def forget(self, short: str) -> None:
        """Takes a model from the configuration without sending it."""
        self._configured.pop(short, None)

    def remove(self, short: str) -> str:
        """Sends the configuration without a model: "OK" or the error."""
        self.forget(short)
        return self.push()

    def reset(self) -> None:
        """Removes all models but the first. Raises RuntimeError if that fails."""
        if set(self._configured) == {BASE}:
            return
        self._configured = {BASE: self.model(BASE)}
        if (pushed := self.push()) != "OK":
            raise RuntimeError(f"the models of the row cannot be removed: {pushed}")

    # Calls.

    def spec(self, short: str, signature: str = "", **choice: Any) -> Spec:
        """A model spec; `choice` is a version or a version_label."""
        version = choice.pop("version", None)
        spec = model_pb2.ModelSpec(name=self.name(short), signature_name=signature, **choice)
        if version is not None:
            spec.version.value = version
        return spec

    def predict(
        self,
        spec: Spec | str | None,
        inputs: Inputs = X,
        outputs: tuple[str, ...] = (),
        timeout: float = TIMEOUT,
    ) -> str:
        """The answer to a Predict call. The spec of a model may be its short name."""
        spec = self.spec(spec) if isinstance(spec, str) else spec
        call = self.client.predict(spec, inputs, outputs, timeout)
        return outcome(lambda: predicted(call.result()))

    def states(self, short: str, **choice: Any) -> str:
        """The states of a model's versions, in the engine's order, or the error."""
        return self.status(self.spec(short, **choice))

    def status(self, spec: Spec | None) -> str:
        """The states of the versions of a model spec, in the engine's order, or the error."""
        return outcome(lambda: ", ".join(state(each) for each in self.client.status(spec)))

    def settled(self, short: str, *wanted: str, timeout: float = TIMEOUT) -> str:
        """The states of a model's versions, when each text of `wanted` is among them or time is
        up.
        """
        with suppress(TimeoutError):
            self.wait_for(lambda: all(each in self.states(short) for each in wanted), "", timeout)
        return self.states(short)

    def flushed(self, short: str, version: int = 1) -> None:
        """Waits until a removed version has left the engine."""
        self.settled(short, f"{version} END")
        time.sleep(_FLUSH)

    def pending(self, call: grpc.Future) -> str:
        """Returns "pending" if a call is not answered within the time `STILL`; otherwise its
        outcome.
        """
        try:
            return finished(call, STILL)
        except grpc.FutureTimeoutError:
            return "pending"

    @staticmethod
    def wait_for(condition: Callable[[], bool], message: str, timeout: float = TIMEOUT) -> None:
        """Waits until a condition holds. Raises TimeoutError with the message."""
        until = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > until:
                raise TimeoutError(message)
            time.sleep(_LOOK_EVERY)

    def plain(self, text: str) -> str:
        """A text without what differs between runs: the directory, and the prefix of names."""
        return text.replace(str(self.directory), "DIR").replace(f"{self._run}-", "")
