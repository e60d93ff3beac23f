"""Sends a case to a running program, or runs it as a command, and returns its outcome."""

import base64
import hashlib
import http.client
import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory

# They describe the services to the pool.
from inference import inference_pb2  # noqa: F401
from outrigger.v1 import canary_pb2, model_pb2, prediction_pb2, validation_pb2  # noqa: F401
from outrigger_testenv import xgboost_serving
from outrigger_testenv.binary import outrigger
from outrigger_testenv.same.mask import HEADERS
from outrigger_testenv.same.scripted import HELD, Scripted

TIMEOUT = 20.0
# Files that commands write are outcomes too, those of more bytes by their hashes.
KEPT = 1 << 16
# The request that the scripted engine holds.
_HELD = {"features": {"told": {"number": HELD}, "value": {"number": 1}}}
# The messages of methods of XGBoost Serving's interface that do not predict.
_OF_XGBOOST_SERVING = {
    "GetModelStatus": "GetModelStatus",
    "HandleReloadConfigRequest": "ReloadConfig",
}


# The metadata that has the details of a failure.
_DETAILS = "grpc-status-details-bin"


class Unsendable(ValueError):
    """The case's message cannot be written in its format, so that there is nothing to send."""


class ByContent:
    """Sends each case in the way that its content asks for."""

    def __init__(self, grpc: "Grpc", http: "Http", commands: "Commands"):
        self._grpc, self._http, self._commands = grpc, http, commands

    def __call__(self, content: Mapping[str, Any]) -> dict[str, Any]:
        if "call" in content:
            return self._grpc(content)
        return self._http(content) if "path" in content else self._commands(content)


class Holding:
    """Sends cases while the scripted engine holds as many requests as each case says.

    They are requests to the model `of`. Their callers give them up after `given_up` seconds, before
    the case is sent.
    """

    def __init__(self, send: Any, grpc: "Grpc", scripted: Scripted):
        self._send, self._grpc, self._scripted = send, grpc, scripted

    def __call__(self, content: Mapping[str, Any]) -> dict[str, Any]:
        count = content.get("held", 0)
        self._scripted.hold()
        held = [self._grpc.begin(content) for _ in range(count)]
        try:
            self._scripted.wait_until_held(count)
            if "given_up" in content:
                while held:
                    held.pop().exception()
            return self._send(content)
        finally:
            self._scripted.release()
            for each in held:
                each.result()
            self._scripted.wait_until_held(0)


class Http:
    """Sends requests to the listeners of one control plane, one after the other on one connection
    each.
    """

    def __init__(self, listeners: Mapping[str, str], token: str):
        self._listeners, self._token = listeners, token

    def __call__(self, content: Mapping[str, Any]) -> dict[str, Any]:
        address = urlsplit(self._listeners[content.get("listener", "http")]).netloc
        headers = {"content-type": "application/json", **headers_of(content, self._token)}
        headers = {name: value for name, value in headers.items() if value is not None}
        connection = http.client.HTTPConnection(address, timeout=TIMEOUT)
        try:
            connection.request(
                content.get("method", "POST"), content["path"], body_of(content), headers
            )
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return {"status": answer.status, "headers": kept(headers), "body": readable(body)}


class Grpc:
    """Calls methods by name, with messages that are written as JSON or hexadecimal bytes."""

    def __init__(self, targets: Mapping[str, str], token: str):
        self._token = token
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channels = {
            name: grpc.insecure_channel(target, options) for name, target in targets.items()
        }

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def begin(self, content: Mapping[str, Any]) -> grpc.Future:
        """Sends one of the requests that are held while a case is sent."""
        message = {"model": {"name": content.get("of", "scripted")}, "treatments": [_HELD]}
        call = "outrigger.v1.PredictionService/Predict"
        encoded = message_of({"call": call, "message": message})
        sent = self._channels["grpc"].unary_unary(f"/{call}")
        return sent.future(encoded, timeout=content.get("given_up", TIMEOUT))

    def __call__(self, content: Mapping[str, Any]) -> dict[str, Any]:
        service, method = content["call"].rsplit("/", 1)
        channel = self._channels[content.get("listener", "grpc")]
        _, response = types(service, method)
        message = message_of(content)
        metadata = list(headers_of(content, self._token).items())
        timeout = content.get("timeout", TIMEOUT)
        try:
            if content.get("stream"):
                stream = channel.unary_stream(f"/{service}/{method}")
                sent = stream(message, timeout=timeout, metadata=metadata)
                # Those before the last one come by time.
                *_, answer = sent
            else:
                call = channel.unary_unary(f"/{service}/{method}")
                answer, sent = call.with_call(message, timeout=timeout, metadata=metadata)
        except grpc.RpcError as error:
            trailing = {each.key: each.value for each in error.trailing_metadata() or ()}
            return {
                "code": error.code().name,
                "text": error.details(),
                "details": details(trailing.get(_DETAILS, b"")),
                "metadata": metadata_of(error),
            }
        return {
            "code": "OK",
            "message": document(response.FromString(answer), preserving_proto_field_name=True),
            "metadata": metadata_of(sent),
        }


class Commands:
    """Runs commands in a directory of their own, with files that the case describes."""

    def __init__(self, packages: Path, variables: Mapping[str, str], filled: Mapping[str, str]):
        self._packages = packages
        self._variables, self._places = dict(variables), dict(filled)

    def __call__(self, content: Mapping[str, Any]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="same-") as name:
            directory = Path(name)
            for path, text in content.get("files", {}).items():
                file = directory / path
                file.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(text, dict) and set(text) == {"base64"}:
                    file.write_bytes(base64.b64decode(text["base64"]))
                else:
                    file.write_text(
                        self._filled(text if isinstance(text, str) else json.dumps(text))
                    )
            self._copy(directory, content.get("package"))
            before = {file: file.read_bytes() for file in directory.rglob("*") if file.is_file()}
            steps = content.get("steps") or [content["arguments"]]
            return {
                "steps": [self._run(directory, step) for step in steps],
                "files": {
                    str(file.relative_to(directory)): _content(file.read_bytes())
                    for file in sorted(directory.rglob("*"))
                    if file.is_file() and before.get(file) != file.read_bytes()
                },
                "removed": sorted(
                    str(file.relative_to(directory)) for file in before if not file.exists()
                ),
            }

    def _copy(self, directory: Path, package: str | None) -> None:
        """Makes `package` in the directory, with the files of the case in place of those of the
        package.
        """
        if package is None:
            return
        for file in (self._packages / package).rglob("*"):
            target = directory / "package" / file.relative_to(self._packages / package)
            if file.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            elif not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())

    def _filled(self, text: str) -> str:
        for name, place in self._places.items():
            text = text.replace(f"{{{name}}}", place)
        return text

    def _run(self, directory: Path, arguments: list[str]) -> dict[str, Any]:
        done = subprocess.run(
            [outrigger(), *map(self._filled, arguments)],
            cwd=directory,
            capture_output=True,
            timeout=60,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return {
            "exit": done.returncode,
            "output": readable(done.stdout),
            "errors": readable(done.stderr),
        }


def message_of(content: Mapping[str, Any]) -> bytes:
    """The encoded message of a call. Raises Unsendable."""
    if "bytes" in content:
        return bytes.fromhex(content["bytes"])
    request, _ = types(*content["call"].rsplit("/", 1))
    try:
        return json_format.ParseDict(content["message"], request()).SerializeToString()
    except (json_format.ParseError, TypeError, ValueError, AttributeError) as error:
        raise Unsendable(str(error)) from error


def kept(headers: Mapping[str, str | bytes]) -> dict[str, Any]:
    """The headers in the order of their names, some without their values."""
    return {
        name: "<measured>" if name in HEADERS else readable(value)
        for name, value in sorted(headers.items())
    }


def metadata_of(sent: Any) -> dict[str, Any]:
    """The metadata of a call, before and after its messages."""
    both = {"initial": sent.initial_metadata(), "trailing": sent.trailing_metadata()}
    return {
        name: kept({each.key: each.value for each in metadata or () if each.key != _DETAILS})
        for name, metadata in both.items()
    }


def headers_of(content: Mapping[str, Any], token: str) -> dict[str, str]:
    """The headers of a case; `{token}` is the operator's token."""
    headers = content.get("headers", {})
    return {name: value and value.replace("{token}", token) for name, value in headers.items()}


def body_of(content: Mapping[str, Any]) -> bytes | None:
    """The body of a request over HTTP: `json`, `text` or `base64`."""
    if "text" in content:
        return content["text"].encode()
    if "base64" in content:
        return base64.b64decode(content["base64"])
    return json.dumps(content["json"]).encode() if "json" in content else None


def readable(value: bytes | str) -> Any:
    """Text as it is, JSON as a document, and other bytes in hexadecimal."""
    if isinstance(value, str):
        return value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"bytes": value.hex()}
    if text[:1] in ("{", "["):
        try:
            # Numbers keep their digits, and differ from texts.
            return json.loads(text, parse_float="#{}".format, parse_int="#{}".format)
        except ValueError:
            pass
    return text


def types(service: str, method: str) -> tuple[type, type]:
    """The classes of a method's request and response."""
    if service.startswith("tensorflow.serving."):
        request = _OF_XGBOOST_SERVING.get(method, "Predict")
        return tuple(map(xgboost_serving.message, (f"{request}Request", f"{request}Response")))
    found = descriptor_pool.Default().FindServiceByName(service).FindMethodByName(method)
    return tuple(map(message_factory.GetMessageClass, (found.input_type, found.output_type)))


def details(encoded: bytes) -> Any:
    """The details of a failure."""
    from google.rpc import error_details_pb2, status_pb2  # noqa: F401

    status = status_pb2.Status.FromString(encoded)
    try:
        return [document(each) for each in status.details]
    except TypeError:
        return encoded.hex()


def document(message: Any, **options: bool) -> dict[str, Any]:
    """A message as a document, whose keys have an order, since those of maps have none."""
    return json.loads(json_format.MessageToJson(message, sort_keys=True, **options))


def _content(content: bytes) -> Any:
    """The content of a file, or its hash if that is much."""
    is_small = len(content) <= KEPT
    return readable(content) if is_small else {"sha256": hashlib.sha256(content).hexdigest()}
