"""Sends tensors to a model by Triton's client over gRPC, and keeps what it answers.

Arguments: the address, the model, a file of arrays by the names of inputs (npz), and the file that
gets the arrays of the outputs. Further arguments are parameters of the request, NAME=VALUE.
"""

import sys

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import np_to_triton_dtype


def main(address, model, inputs, outputs, *parameters):
    client = grpcclient.InferenceServerClient(address)
    metadata = client.get_model_metadata(model)
    tensors = []
    for name, array in np.load(inputs).items():
        values = array.astype(object) if array.dtype.kind == "S" else array
        tensor = grpcclient.InferInput(name, values.shape, np_to_triton_dtype(values.dtype))
        tensor.set_data_from_numpy(values)
        tensors.append(tensor)
    sent = dict(parameter.split("=", 1) for parameter in parameters)
    result = client.infer(model, tensors, request_id="1", parameters=sent)
    answered = result.get_response()
    if (answered.id, answered.model_name) != ("1", model):
        raise SystemExit(f"the answer is for {answered.id} of {answered.model_name}")
    names = [output.name for output in metadata.outputs]
    np.savez(outputs, **{name: result.as_numpy(name) for name in names})


if __name__ == "__main__":
    main(*sys.argv[1:])
