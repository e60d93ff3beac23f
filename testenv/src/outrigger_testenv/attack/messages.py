"""Messages of `outrigger.v1` by hand, also ones that a library would not encode."""

import zlib

EXPLAIN = "/outrigger.v1.PredictionService/Explain"
PREDICT = "/outrigger.v1.PredictionService/Predict"


def varint(value: int) -> bytes:
    """A number in protobuf's variable length."""
    encoded = bytearray()
    while value >= 128:
        encoded.append(value % 128 | 128)
        value //= 128
    return bytes([*encoded, value])


def field(number: int, content: bytes) -> bytes:
    """A field with a length: a message, a text or bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def gzip(content: bytes) -> bytes:
    """The content as a deflate stream of level 9 with the header and the checksum of gzip."""
    return zlib.compress(content, 9, 31)


def model(name: str, tag: str = "") -> bytes:
    """The field `model` of a PredictRequest."""
    selector = field(1, name.encode()) + (field(2, tag.encode()) if tag else b"")
    return field(1, selector)


def table(count: int) -> bytes:
    """The field `treatment_table` with a number of treatments, all of whose features are absent."""
    # TreatmentTable.count is field 5, a number.
    return field(7, b"\x28" + varint(count))
