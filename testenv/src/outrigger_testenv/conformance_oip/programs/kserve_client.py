"""Calls a server with KServe's clients, and prints what they return: an object of JSON by name.

Arguments: the addresses of REST and of gRPC.
"""

import asyncio
import json
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

MODEL = "identity_fp32"
NUMBERS = np.array([[1, 2]], np.float32)
INT64 = np.array([[-(1 << 63), (1 << 63) - 1]], np.int64)


def request(array, datatype, model, binary=False):
    """A request with one input."""
    made = InferInput("x", list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return InferRequest(model, [made], request_id="one")


def told(response):
    """The outputs of a response as text; the values are a list of JSON."""
    texts = []
    for output in response.outputs:
        if output.name != "OUT_x":
            continue
        array = output.as_numpy()
        texts.append(f"{output.name} {list(array.shape)} {json.dumps(array.ravel().tolist())}")
    return "; ".join(texts)


def over_http(address):
    """The calls over REST."""
    client, base = InferenceRESTClient(RESTConfig(protocol="v2", timeout=30)), f"http://{address}"

    async def infer(array, datatype, model=MODEL, binary=False):
        sent = request(array, datatype, model, binary)
        return await client.infer(base, sent, model_name=model)

    async def outputs(*arguments, **options):
        return told(await infer(*arguments, **options))

    async def identifier():
        return (await infer(NUMBERS, "FP32")).id

    return {
        "live": lambda: client.is_server_live(base),
        "ready": lambda: client.is_server_ready(base),
        "model ready": lambda: client.is_model_ready(base, MODEL),
        "infer": lambda: outputs(NUMBERS, "FP32"),
        "id": identifier,
        "zero rows": lambda: outputs(NUMBERS[:0], "FP32"),
        "INT64": lambda: outputs(INT64, "INT64", "identity_int64"),
        "binary": lambda: outputs(NUMBERS, "FP32", binary=True),
    }


def over_grpc(address):
    """The calls over gRPC."""
    client = InferenceGRPCClient(address, timeout=30)

    async def outputs(array, datatype, model=MODEL, binary=False):
        return told(await client.infer(request(array, datatype, model, binary)))

    half = NUMBERS.astype(np.float16)
    return {
        "live": client.is_server_live,
        "ready": client.is_server_ready,
        "model ready": lambda: client.is_model_ready(MODEL),
        "infer": lambda: outputs(NUMBERS, "FP32"),
        "raw": lambda: outputs(NUMBERS, "FP32", binary=True),
        "zero rows": lambda: outputs(NUMBERS[:0], "FP32", binary=True),
        "INT64": lambda: outputs(INT64, "INT64", "identity_int64"),
        "FP16": lambda: outputs(half, "FP16", "identity_fp16", binary=True),
    }


async def result(act):
    """Returns the result of an act as text."""
    try:
        returned = await act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return returned if isinstance(returned, str) else json.dumps(returned)


async def main(rest, grpc):
    """Prints the results of all calls."""
    acts = {"http": over_http(rest), "grpc": over_grpc(grpc)}
    results = {}
    for form, all_of in acts.items():
        for name, act in all_of.items():
            results[f"{form} {name}"] = await result(act)
    print(json.dumps(results))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
