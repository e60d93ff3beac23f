"""Writes the cases as inputs of the fuzz targets, a directory for each target.

python -m outrigger_testenv.same.seeds DIRECTORY
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from outrigger_testenv.same import cases, senders

# The first byte of the target `rows`: its remainder by 3 is the method, and documents have a flag.
_DOCUMENT = 128
_METHODS = {"Predict": 0, "PredictAlphafm": 1, "PredictAlphafmSoftmax": 2}
_VERBS = {"predict": 0, "predict_alphafm": 1, "predict_softmax": 2}
# The flags of a request in the target `inference`, and the length of its JSON, which has none.
_REQUEST = bytes(3)


def main() -> None:
    directory = Path(sys.argv[1])
    written = 0
    for case in cases.read():
        for target, content in inputs(case):
            place = directory / target
            place.mkdir(parents=True, exist_ok=True)
            (place / hashlib.sha1(content).hexdigest()).write_bytes(content)
            written += 1
    print(f"{written} cases are inputs of fuzz targets")


def inputs(case: cases.Case) -> Iterator[tuple[str, bytes]]:
    """The targets that read a part of the case, each with its input."""
    for path, text in case.content.get("files", {}).items():
        content = text if isinstance(text, str) else json.dumps(text)
        if path == "package/metadata.json":
            yield "metadata", content.encode()
        elif path == "package/golden.jsonl":
            yield "golden", content.encode()
    if "call" in case.content:
        yield from _of_call(case.content)
    elif "path" in case.content:
        yield from _of_path(case.content["path"], senders.body_of(case.content) or b"")


def _of_call(content: dict) -> Iterator[tuple[str, bytes]]:
    service, method = content["call"].rsplit("/", 1)
    try:
        message = senders.message_of(content)
    except senders.Unsendable:
        return
    if service == "outrigger.v1.PredictionService":
        yield "raw", message
    elif service == "tensorflow.serving.PredictionService":
        yield "rows", bytes([_METHODS[method]]) + message


def _of_path(path: str, body: bytes) -> Iterator[tuple[str, bytes]]:
    if path in ("/v1/predict", "/v1/explain"):
        yield "json", body
    elif path.endswith("/infer"):
        yield "inference", _REQUEST + body
    elif (verb := path.rpartition(":")[2]) in _VERBS:
        flag = next(each for each in range(_DOCUMENT, 256) if each % 3 == _VERBS[verb])
        yield "rows", bytes([flag]) + body


if __name__ == "__main__":
    main()
