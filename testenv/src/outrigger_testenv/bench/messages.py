"""The requests that every load generator sends, and the scores of the model for them.

`outrigger bench --save` writes the requests, so that all send the same bytes.
"""

import atexit
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from outrigger_testenv.bench.figure import Failed
from outrigger_testenv.bench.generator import execute
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import ModelPackage

# Scores of another machine's vectors, or of a batch of another size, differ by rounding.
_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Batch:
    """Different requests of one form and size, in files, in the order in which they are sent."""

    requests: tuple[Path, ...]
    # TensorFlow's scores of each.
    scores: tuple[np.ndarray, ...]

    def check(self, client: str, directory: Path) -> None:
        """Compares the scores that a client got with the model's, and the requests with these if it
        saved its own. Raises Failed.
        """
        for at, (request, expected) in enumerate(zip(self.requests, self.scores, strict=True)):
            sent, answer = directory / request.name, directory / f"answer-{at}{request.suffix}"
            if sent.exists() and sent.read_bytes() != request.read_bytes():
                raise Failed(f"{client}: request {at} is not the one that the others send")
            if not answer.exists():
                raise Failed(f"{client}: it saved no answer to request {at}")
            got = scores_of(answer)
            if got.shape != expected.shape or not np.allclose(got, expected, atol=_TOLERANCE):
                raise Failed(f"{client}: the scores for request {at} are not those of the model")


class Messages:
    """The requests for one package; those of a form and size are made at their first use."""

    def __init__(self, package: ModelPackage):
        self._package = package
        self._made: dict[tuple[str, int], Batch] = {}

    def of(self, address: str, model: str, form: str, treatments: int) -> Batch:
        """The requests of a form; a control plane that serves the model is at the address. Raises
        Failed.
        """
        if (form, treatments) not in self._made:
            directory = self._directory / f"{form}-{treatments}"
            directory.mkdir()
            arguments = ["--server", address, "--model", model, "--form", form]
            arguments += ["--package", str(self._package.directory)]
            save([*arguments, "--treatments", str(treatments)], directory)
            self._made[form, treatments] = batch(self._package, directory)
        return self._made[form, treatments]

    @cached_property
    def _directory(self) -> Path:
        directory = tempfile.mkdtemp(prefix="outrigger-messages-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        return Path(directory)


def save(arguments: Sequence[str], directory: Path) -> None:
    """Writes the requests that `outrigger bench` sends with these arguments, and the answers to
    them. Raises Failed.
    """
    command = [str(outrigger()), "bench", *arguments, "--save", str(directory)]
    command += ["--max", "--in-flight", "1", "--warmup", "0s", "--duration", "1ms"]
    command += ["--timeout", "30s", "--output", "json", "--quiet"]
    # Nothing may be answered in so short a time.
    execute("requests", command, may_fail=True)


def requests_in(directory: Path) -> list[Path]:
    """The requests in a directory, in the order in which they are sent. Raises Failed if there are
    none.
    """
    requests = sorted(directory.glob("request-*"), key=lambda path: int(path.stem.split("-")[1]))
    if not requests:
        raise Failed(f"no requests in {directory}")
    return requests


def batch(package: ModelPackage, directory: Path) -> Batch:
    """The requests in a directory, with TensorFlow's scores. Raises Failed if there are none."""
    requests = requests_in(directory)
    scores = [package.score(*frames_of(request))[0] for request in requests]
    return Batch(tuple(requests), tuple(scores))


def scores_of(answer: Path) -> np.ndarray:
    """The scores in a saved answer."""
    if answer.suffix == ".json":
        return np.array([each["score"] for each in json.loads(answer.read_bytes())["scores"]])
    from outrigger.v1 import prediction_pb2 as pb

    return np.array(pb.PredictResponse.FromString(answer.read_bytes()).scores.values)


def frames_of(request: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The user and the treatments of a saved request whose features are numbers."""
    if request.suffix == ".json":
        content = json.loads(request.read_bytes())
        rows = [treatment["features"] for treatment in content["treatments"]]
        return pd.DataFrame([content["user"]]), pd.DataFrame(rows)
    from outrigger.v1 import prediction_pb2 as pb

    message = pb.PredictRequest.FromString(request.read_bytes())
    user = pd.DataFrame([_values(message.user_features.features)])
    if not message.HasField("treatment_table"):
        return user, pd.DataFrame([_values(each.features) for each in message.treatments])
    numbers = message.treatment_table.numbers
    names: Sequence[str] = list(numbers.names)
    return user, pd.DataFrame(
        np.frombuffer(numbers.values, "<f4").reshape(-1, len(names)), columns=names
    )


def _values(features: Any) -> dict[str, Any]:
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in features.items()}
