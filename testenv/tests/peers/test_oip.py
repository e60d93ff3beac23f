"""Triton's client gets TensorFlow's scores over the Open Inference Protocol."""

import numpy as np
import pytest

from outrigger_testenv.oip import environments, tritonclient
from outrigger_testenv.packing import pack
from outrigger_testenv.processes import free_ports
from outrigger_testenv.reference import reference_frames

TENSORS, TABLE = "oip/tensors", "oip/table"
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


@pytest.fixture
def serving(own_stack, reference):
    """A stack with the reference model in both views."""
    environments.needs(environments.TRITONCLIENT)
    (port,) = free_ports(1)
    models = [{"name": TENSORS}, {"name": TABLE, "view": "features"}]
    stack = own_stack(overrides={"server": {"oip": f"127.0.0.1:{port}"}}, models=models)
    stack.oip = f"127.0.0.1:{port}"
    for name in (TENSORS, TABLE):
        stack.push(reference, name)
    return stack


def infer(stack, model, tensors, **parameters):
    """The outputs that Triton's client gets for these inputs."""
    return tritonclient.infer(stack.oip, model, tensors, stack.directory, **parameters)


def test_tensors_of_the_signature_give_the_bits_that_tensorflow_gives(serving, reference):
    users, treatments = reference_frames(1, 1000)
    tensors = pack(reference.metadata, users, treatments)
    outputs = infer(serving, TENSORS, tensors)
    own = reference.run(tensors)
    assert outputs.keys() == own.keys()
    for name, values in own.items():
        assert outputs[name].tobytes() == values.tobytes()


def test_a_table_gives_the_scores_that_tensorflow_gives(serving, reference):
    users, treatments = reference_frames(3, 40)
    columns = {
        name: np.repeat(values.to_numpy(), len(treatments)) for name, values in users.items()
    }
    columns |= {name: np.tile(values.to_numpy(), len(users)) for name, values in treatments.items()}
    columns["session"] = np.repeat(np.arange(len(users)), len(treatments))
    outputs = infer(serving, TABLE, columns, group_by="session")
    (scores,) = outputs.values()
    expected = np.concatenate(reference.score(users, treatments))
    np.testing.assert_allclose(scores[:, 0], expected, **CLOSE)
