"""A model on Triton through an engine of the kind `oip`, beside Triton called directly."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from outrigger_testenv.bench.figure import Effort, Measurement
from outrigger_testenv.bench.generator import CONTROL_PLANE, Side
from outrigger_testenv.bench.oip.front import GRPC, LOAD, by_turns, turns_of
from outrigger_testenv.bench.oip.served import peer_processes, started
from outrigger_testenv.bench.setup import COLUMNAR, Setup, load_arguments, serve
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.features import JOINED, TREATMENT, USER, Input, Metadata, Output, numeric
from outrigger_testenv.oip import peers
from outrigger_testenv.stack import Stack

# The name of the engine, and of Triton's processes in reports.
_TRITON = "triton"
_SERVED = Path(peers.__file__).parent / "served"
_MODEL = "scored"
# The columns of the model, of which the first ones are the user's.
_COLUMNS, _OF_USER = 20, 4
_CONFIGURATION = f"""backend: "python"
max_batch_size: 0
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ -1, {_COLUMNS} ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ -1, 1 ] }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
"""


def throughput(_: Setup, effort: Effort) -> Measurement:
    """Answers a second through the control plane over those of Triton called directly with the same
    tensors. Raises Skipped if Triton cannot be installed.
    """
    with (
        tempfile.TemporaryDirectory(prefix="outrigger-bench-") as directory,
        _sides(Path(directory)) as sides,
    ):
        turns = by_turns(sides, LOAD, turns_of(effort))
    samples = [turn["through"].throughput / turn["direct"].throughput for turn in turns]
    return Measurement(samples, runs=[turn[side].raw() for turn in turns for side in turn])


@contextmanager
def _sides(directory: Path) -> Iterator[Mapping[str, Side]]:
    """Both ways to the model, which runs while they are used."""
    package = _package(directory / "package")
    with started(peers.Triton, directory / _TRITON, ()) as triton:
        engine = {"kind": "oip", "endpoint": triton.grpc, "repository": str(triton.repository)}
        overrides = {"engines": {_TRITON: engine}, "images": {"poll_interval": "30s"}}
        with Stack(overrides, with_registry=False, engine=False) as stack:
            digest = serve(stack, package, _MODEL)
            processes = peer_processes(_TRITON, triton)
            published = f"{_MODEL}-{digest.removeprefix('sha256:')[:16]}"
            arguments = load_arguments(package)
            through = ["--server", stack.serve.target, "--model", _MODEL, "--form", COLUMNAR]
            direct = ["--server", triton.grpc, "--model", published, "--form", GRPC]
            control_plane = {CONTROL_PLANE: stack.serve.process.pid}
            yield {
                "through": Side("control plane", [*through, *arguments], control_plane | processes),
                "direct": Side("Triton", [*direct, *arguments], processes),
            }


def _package(directory: Path) -> ModelPackage:
    """A package that carries a model for Triton: the sum of each row."""
    model = directory / "oip" / _MODEL
    (model / "1").mkdir(parents=True)
    shutil.copy(_SERVED / "triton_scaled.py", model / "1" / "model.py")
    (model / "1" / "scale.txt").write_text("1")
    (model / "config.pbtxt").write_text(_CONFIGURATION)
    features = [numeric(f"u{at}", entity=USER, required=True) for at in range(_OF_USER)]
    features += [
        numeric(f"t{at}", entity=TREATMENT, required=True) for at in range(_OF_USER, _COLUMNS)
    ]
    inputs = (Input("x", JOINED, "float32", tuple(features)),)
    outputs = (Output("y", "score"),)
    Metadata(inputs, outputs, framework="oip", remote={"model": _MODEL}).write(directory)

    def function(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"y": tensors["x"].sum(axis=1, keepdims=True)}

    return ModelPackage(directory, function)
