"""The stacks that cases are sent to: one that serves every package, one of what goes wrong, and one
whose engine holds requests.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.client import Client
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.onnxmodels import OnnxEngine
from outrigger_testenv.processes import free_ports
from outrigger_testenv.same import packages, senders
from outrigger_testenv.same.mask import Mask
from outrigger_testenv.same.scripted import Scripted
from outrigger_testenv.signing import Signer
from outrigger_testenv.stack import Stack, library

# The package `tiny`, with an input for each of its features.
TABLE = "table"
SPARSE = "sparse"
# Seconds until a model is loaded, or has failed; those of models that have to be loaded.
_LOADED, _SERVED = 30.0, 120.0

Sender = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass
class World:
    """A running stack, and what sends cases to it."""

    stack: Stack
    send: Sender
    mask: Mask


@contextmanager
def usual(made: Path) -> Iterator[World]:
    """Starts a stack that serves all packages, each under its name."""
    (port,) = free_ports(1)
    models = [{"name": name} for name in packages.NAMES]
    models.append({"name": TABLE, "view": "features"})
    overrides = {"server": {"oip": f"127.0.0.1:{port}"}}
    with Stack(overrides, models, with_registry=False, start=False) as stack:
        for name in packages.NAMES:
            stack.push(ModelPackage(made / name), name)
        stack.push(ModelPackage(made / "tiny"), TABLE)
        _start(stack)
        with _senders(stack, made, {}) as running:
            yield running


@contextmanager
def crowds(made: Path) -> Iterator[World]:
    """Starts a stack whose scripted engine runs more requests than a version has places."""
    (port,) = free_ports(1)
    with Scripted() as scripted:
        overrides = {
            "server": {"oip": f"127.0.0.1:{port}", "default_deadline": "1s"},
            "engines": {
                "remote": {"kind": "oip", "endpoint": scripted.address, "max_in_flight": 32}
            },
            "limits": {
                "models": {name: 1 for name in packages.CROWDS if name.startswith("limited")}
            },
        }
        models = [{"name": name} for name in packages.CROWDS]
        with Stack(overrides, models, False, start=False, engine=False) as stack:
            for name in packages.CROWDS:
                stack.push(ModelPackage(made / "scripted"), name)
            _start(stack)
            with _senders(stack, made, {}, scripted) as running:
                yield running


def _start(stack: Stack) -> None:
    """Starts a stack, and loads its models."""
    stack.start()
    for model in stack.serve.config["models"]:
        stack.client(timeout=_SERVED).load(model["name"])


@contextmanager
def faults(made: Path) -> Iterator[World]:
    """Starts a stack with small limits whose models cannot be served or run on a scripted engine,
    and whose callers may use the interface of XGBoost Serving.
    """
    ports = [f"127.0.0.1:{port}" for port in free_ports(2)]
    directory = Path(tempfile.mkdtemp(prefix="same-"))
    onnx = OnnxEngine(directory / "onnx", directory / "onnx.log")
    with Scripted() as scripted:
        stack = Stack(_limits(ports, directory), [], False, start=False, engine=False)
        images = stack.images
        known = [*packages.FAULTS, "nothing"]
        unreachable = "127.0.0.1:1/models"
        key = Signer(directory / "key.pem").public
        stack.serve.config["engines"] |= {
            "onnx": onnx.entry,
            "remote": {"kind": "oip", "endpoint": scripted.address},
        }
        stack.serve.config["images"] |= {
            "allowed": [unreachable, *(f"{images}/{name}" for name in known)],
            "signatures": [
                {"prefix": f"{images}/unsigned", "keys": [str(key)]},
                {"prefix": images},
                {"prefix": unreachable},
            ],
            "plain_http": ["127.0.0.1:1"],
        }
        versions = {SPARSE: made / SPARSE, "broken": directory / "broken"}
        (directory / "broken" / "1").mkdir(parents=True)
        (directory / "broken" / "1" / "metadata.json").write_text('{"schema": 3}')
        stack.serve.config["models"] = [
            *({"name": name} for name in known),
            *({"name": name, "directory": str(place)} for name, place in versions.items()),
            {"name": "unreachable", "image": f"{unreachable}/one"},
        ]
        for name, package in packages.FAULTS.items():
            stack.push(_damaged(name, made / package, directory), name)
        try:
            onnx.start()
            with stack:
                stack.start()
                for model in stack.serve.config["models"]:
                    _try(stack.client(timeout=_LOADED), model["name"])
                with _senders(stack, made, {str(directory): "<files>"}, scripted) as running:
                    yield running
        finally:
            onnx.process.kill()
            shutil.rmtree(directory, ignore_errors=True)


def _try(client: Client, model: str) -> None:
    """Loads a model, or has the failure recorded that cases then get."""
    with suppress(OutriggerError):
        client.load(model)


def _limits(ports: list[str], directory: Path) -> dict[str, Any]:
    files = directory / "rows"
    files.mkdir()
    (files / "rows.csv").write_text("told,value\n0,1\n0,x\n112,3\n")
    # More errors than a report has unless it is asked for more.
    (files / "many.csv").write_text("told,value\n" + 300 * "0,x\n")
    (files / "scores.csv").write_text("")
    (files / "damaged.parquet").write_text("PAR1")
    return {
        "server": {
            **dict(zip(("oip", "xgboost_serving"), ports, strict=True)),
            "max_in_flight": 2,
            "max_treatments": 4,
            "max_users": 2,
            "max_message": "16KiB",
            "compression": "none",
            "default_deadline": "2s",
        },
        "auth": {"xgboost_serving": ["change"]},
        "images": {"poll_interval": "1h", "directory_poll_interval": "200ms"},
        "validation": {"directory": str(files)},
        "canary": {"enabled": False},
    }


def _damaged(name: str, package: Path, directory: Path) -> ModelPackage:
    """The package as it is, or a copy that has other golden scores."""
    if name != "golden":
        return ModelPackage(package)
    copied = Path(shutil.copytree(package, directory / name))
    golden = copied / "golden.jsonl"
    cases = [json.loads(line) for line in golden.read_text().splitlines()]
    for case in cases:
        case["expected"]["scores"] = [score + 1 for score in case["expected"]["scores"]]
    golden.write_text("".join(f"{json.dumps(case)}\n" for case in cases))
    return ModelPackage(copied)


@contextmanager
def _senders(
    stack: Stack, made: Path, places: Mapping[str, str], scripted: Scripted | None = None
) -> Iterator[World]:
    server = stack.serve.config["server"]
    others = {name: server[name] for name in ("oip", "xgboost_serving") if name in server}
    listeners = {
        "http": stack.serve.http,
        "health": stack.serve.health,
        "admin": f"http://{stack.serve.admin}",
        **{name: f"http://{address}" for name, address in others.items()},
    }
    token = stack.serve.token.read_text().strip()
    targets = {"grpc": stack.serve.target, "admin": stack.serve.admin, **others}
    home = tempfile.mkdtemp(dir=stack.directory)
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": home,
        "TMPDIR": "/tmp",
        "COLUMNS": "100",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "OUTRIGGER_ADMIN": stack.serve.admin,
        "OUTRIGGER_URL": stack.serve.http,
        "OUTRIGGER_AUTH_TOKEN_FILE": str(stack.serve.token),
        **{k: v for k, v in os.environ.items() if k == "OUTRIGGER_TENSORFLOW"},
        **library(),
    }
    filled = {"packages": str(made), **others}
    if scripted is not None:
        filled["scripted"] = scripted.address
    grpc, http = senders.Grpc(targets, token), senders.Http(listeners, token)
    commands = senders.Commands(made, variables, filled)
    sender = senders.ByContent(grpc, http, commands)
    # Help shows the values of variables, in the kind whose addresses are not masked.
    known = {str(made): "<packages>", str(stack.directory): "<stack>", token: "<token>", **places}
    known |= {stack.serve.admin: "<address>", stack.serve.http: "<http>"}
    try:
        yield World(
            stack,
            senders.Holding(sender, grpc, scripted) if scripted else sender,
            Mask(known),
        )
    finally:
        grpc.close()
