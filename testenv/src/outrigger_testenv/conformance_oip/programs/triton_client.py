"""Calls a server with Triton's clients, and prints what they return: an object of JSON by name.

Arguments: the addresses of REST and of gRPC.
"""

import json
import sys

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

MODEL = "identity_fp32"
NUMBERS = np.array([[1, 2]], np.float32)
INT64 = np.array([[-(1 << 63), (1 << 63) - 1]], np.int64)
TEXTS = np.array([["é\u0000".encode(), b""]], np.object_)


def tensor(api, array, datatype, name="x", **form):
    """An input with its values."""
    made = api.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, **form)
    return made


def told(result, *names):
    """The outputs of a result as text; the values are a list of JSON."""
    texts = []
    for name in names:
        array = result.as_numpy(name)
        values = array.ravel().tolist()
        values = [each.decode() if isinstance(each, bytes) else each for each in values]
        texts.append(f"{name} {list(array.shape)} {json.dumps(values, ensure_ascii=False)}")
    return "; ".join(texts)


def pair(api, **form):
    """The inputs of the model of two."""
    other = np.array([[3, 4]], np.float32)
    return [tensor(api, NUMBERS, "FP32", "a", **form), tensor(api, other, "FP32", "b", **form)]


def over_http(address):
    """The calls over REST."""
    client = httpclient.InferenceServerClient(address)
    text = {"binary_data": False}

    def infer(array, datatype, model=MODEL, binary=False, **options):
        form = {"binary_data": binary}
        output = httpclient.InferRequestedOutput("OUT_x", **form)
        inputs = [tensor(httpclient, array, datatype, **form)]
        return client.infer(model, inputs, outputs=[output], **options)

    def asked(*names):
        outputs = [httpclient.InferRequestedOutput(name, **text) for name in names]
        result = client.infer("pair", pair(httpclient, **text), outputs=outputs)
        return [each["name"] for each in result.get_response()["outputs"]]

    return {
        "live": client.is_server_live,
        "ready": client.is_server_ready,
        "model ready": lambda: client.is_model_ready(MODEL),
        "server": lambda: sorted(client.get_server_metadata()),
        "metadata": lambda: client.get_model_metadata(MODEL)["inputs"],
        "infer": lambda: told(infer(NUMBERS, "FP32"), "OUT_x"),
        "id": lambda: infer(NUMBERS, "FP32", request_id="one").get_response()["id"],
        "zero rows": lambda: told(infer(NUMBERS[:0], "FP32"), "OUT_x"),
        "INT64": lambda: told(infer(INT64, "INT64", "identity_int64"), "OUT_x"),
        "BYTES": lambda: told(infer(TEXTS, "BYTES", "identity_bytes"), "OUT_x"),
        "gzip request": lambda: told(
            infer(NUMBERS, "FP32", request_compression_algorithm="gzip"), "OUT_x"
        ),
        "gzip answer": lambda: told(
            infer(NUMBERS, "FP32", response_compression_algorithm="gzip"), "OUT_x"
        ),
        "requested": lambda: asked("sum"),
        "order": lambda: asked("difference", "sum"),
        "binary": lambda: told(infer(NUMBERS, "FP32", binary=True), "OUT_x"),
        "binary FP16": lambda: told(
            infer(NUMBERS.astype(np.float16), "FP16", "identity_fp16", binary=True), "OUT_x"
        ),
        "binary zero rows": lambda: told(infer(NUMBERS[:0], "FP32", binary=True), "OUT_x"),
        "binary BYTES": lambda: told(infer(TEXTS, "BYTES", "identity_bytes", binary=True), "OUT_x"),
        "index": lambda: states(client.get_model_repository_index()),
    }


def over_grpc(address):
    """The calls over gRPC."""
    client = grpcclient.InferenceServerClient(address)

    def infer(array, datatype, model=MODEL, **options):
        return client.infer(model, [tensor(grpcclient, array, datatype)], **options)

    def asked(*names):
        outputs = [grpcclient.InferRequestedOutput(name) for name in names]
        result = client.infer("pair", pair(grpcclient), outputs=outputs)
        return [output.name for output in result.get_response().outputs]

    return {
        "live": client.is_server_live,
        "ready": client.is_server_ready,
        "model ready": lambda: client.is_model_ready(MODEL),
        "server": lambda: bool(client.get_server_metadata().name),
        "metadata": lambda: client.get_model_metadata(MODEL, as_json=True)["inputs"],
        "infer": lambda: told(infer(NUMBERS, "FP32"), "OUT_x"),
        "id": lambda: infer(NUMBERS, "FP32", request_id="one").get_response().id,
        "zero rows": lambda: told(infer(NUMBERS[:0], "FP32"), "OUT_x"),
        "INT64": lambda: told(infer(INT64, "INT64", "identity_int64"), "OUT_x"),
        "BYTES": lambda: told(infer(TEXTS, "BYTES", "identity_bytes"), "OUT_x"),
        "FP16": lambda: told(infer(NUMBERS.astype(np.float16), "FP16", "identity_fp16"), "OUT_x"),
        "requested": lambda: asked("sum"),
        "order": lambda: asked("difference", "sum"),
        "index": lambda: states(client.get_model_repository_index(as_json=True)["models"]),
    }


def states(models):
    """The state of a model in an index."""
    return {each["name"]: each.get("state") for each in models}.get(MODEL)


def result(act):
    """Returns the result of an act as text."""
    try:
        returned = act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if isinstance(returned, str):
        return returned
    return json.dumps(returned, sort_keys=True, separators=(",", ":"))


def main(rest, grpc):
    """Prints the results of all calls."""
    acts = {"http": over_http(rest), "grpc": over_grpc(grpc)}
    results = {
        f"{form} {name}": result(act)
        for form, all_of in acts.items()
        for name, act in all_of.items()
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
