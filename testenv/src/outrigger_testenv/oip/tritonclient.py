"""Triton's client, in its own environment."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from outrigger_testenv.oip import environments, programs

# The longest run, in seconds.
_LONGEST = 120


def infer(
    address: str, model: str, tensors: Mapping[str, np.ndarray], directory: Path, **parameters: str
) -> dict[str, np.ndarray]:
    """The outputs that the client gets for these inputs over gRPC. Texts are sent as UTF-8. Raises
    environments.Missing if the client cannot be installed, CalledProcessError if the call fails.
    """
    program = Path(programs.__file__).parent / "infer.py"
    with TemporaryDirectory(dir=directory) as temporary:
        inputs, outputs = Path(temporary, "inputs.npz"), Path(temporary, "outputs.npz")
        np.savez(inputs, **{name: _encoded(values) for name, values in tensors.items()})
        sent = [f"{name}={value}" for name, value in parameters.items()]
        command = [environments.python(environments.TRITONCLIENT), program, address, model]
        subprocess.run([*command, inputs, outputs, *sent], check=True, timeout=_LONGEST)
        with np.load(outputs) as found:
            return dict(found)


def _encoded(values: np.ndarray) -> np.ndarray:
    """Texts as bytes, which the file can hold without objects."""
    is_text = values.dtype.kind in "OU"
    return np.char.encode(values.astype(str), "utf-8") if is_text else values
