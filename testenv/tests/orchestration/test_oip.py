"""Triton's client gets TensorFlow's scores over the Open Inference Protocol."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from outrigger_testenv.oip import environments, programs
from outrigger_testenv.packing import pack
from outrigger_testenv.processes import free_ports
from outrigger_testenv.reference import reference_frames

TENSORS, TABLE = "oip/tensors", "oip/table"
CLOSE = {"rtol": 1e-4, "atol": 1e-6}
# The longest run of the client, in seconds.
LONGEST = 120


@pytest.fixture(scope="module")
def python():
    """The interpreter that has Triton's client."""
    environments.needs(environments.TRITONCLIENT)
    return environments.python(environments.TRITONCLIENT)


@pytest.fixture
def serving(own_stack, reference):
    """A stack with the reference model in both views."""
    (port,) = free_ports(1)
    models = [{"name": TENSORS}, {"name": TABLE, "view": "features"}]
    stack = own_stack(overrides={"server": {"oip": f"127.0.0.1:{port}"}}, models=models)
    stack.oip = f"127.0.0.1:{port}"
    for name in (TENSORS, TABLE):
        stack.push(reference, name)
    return stack


def infer(python, stack, model, tensors, **parameters):
    """The outputs that Triton's client gets for these inputs."""
    directory = stack.directory / "oip"
    directory.mkdir(exist_ok=True)
    np.savez(directory / "inputs.npz", **tensors)
    program = Path(programs.__file__).parent / "infer.py"
    sent = [f"{name}={value}" for name, value in parameters.items()]
    files = [directory / "inputs.npz", directory / "outputs.npz"]
    command = [python, program, stack.oip, model, *files, *sent]
    subprocess.run(command, check=True, timeout=LONGEST)
    with np.load(directory / "outputs.npz") as outputs:
        return dict(outputs)


def test_tensors_of_the_signature_give_the_bits_that_tensorflow_gives(python, serving, reference):
    users, treatments = reference_frames(1, 1000)
    tensors = pack(reference.metadata, users, treatments)
    outputs = infer(python, serving, TENSORS, tensors)
    own = reference.run(tensors)
    assert outputs.keys() == own.keys()
    for name, values in own.items():
        assert outputs[name].tobytes() == values.tobytes()


def test_a_table_gives_the_scores_that_tensorflow_gives(python, serving, reference):
    users, treatments = reference_frames(3, 40)
    columns = {
        name: np.repeat(values.to_numpy(), len(treatments)) for name, values in users.items()
    }
    columns |= {name: np.tile(values.to_numpy(), len(users)) for name, values in treatments.items()}
    columns["session"] = np.repeat(np.arange(len(users)), len(treatments))
    outputs = infer(python, serving, TABLE, columns, group_by="session")
    (scores,) = outputs.values()
    expected = np.concatenate(reference.score(users, treatments))
    np.testing.assert_allclose(scores[:, 0], expected, **CLOSE)
