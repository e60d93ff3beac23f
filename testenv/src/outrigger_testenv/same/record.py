"""Records the outcomes of cases with the program that OUTRIGGER_BIN names.

python -m outrigger_testenv.same.record --packages DIR --output FILE [--only PREFIX]
"""

import argparse
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrigger_testenv.processes import free_ports
from outrigger_testenv.same import cases, packages, senders
from outrigger_testenv.same.mask import Mask
from outrigger_testenv.stack import Stack, library

# The package `tiny`, with an input for each of its features.
TABLE = "table"
# Values of metrics depend on times; their names and labels do not.
_SAMPLE = re.compile(r"^([a-zA-Z_:]+(?:\{.*\})?) ", re.MULTILINE)


@dataclass
class World:
    """The running stack, and what sends to it."""

    stack: Stack
    senders: dict[str, Any]
    mask: Mask


@contextmanager
def world(made: Path) -> Iterator[World]:
    """Starts a stack that serves all packages, each under its name."""
    (port,) = free_ports(1)
    oip = f"127.0.0.1:{port}"
    models = [{"name": name} for name in packages.NAMES]
    models.append({"name": TABLE, "view": "features"})
    with Stack({"server": {"oip": oip}}, models, with_registry=False, start=False) as stack:
        for name, package in packages.packages(made).items():
            stack.push(package, name)
        stack.push(packages.packages(made)["tiny"], TABLE)
        stack.start()
        client = stack.client()
        for model in models:
            client.load(model["name"])
        listeners = {
            "http": stack.serve.http,
            "health": stack.serve.health,
            "admin": f"http://{stack.serve.admin}",
            "oip": f"http://{oip}",
        }
        token = stack.serve.token.read_text().strip()
        targets = {"grpc": stack.serve.target, "admin": stack.serve.admin, "oip": oip}
        grpc, http = senders.Grpc(targets, token), senders.Http(listeners, token)
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
        commands = senders.Commands(made, variables)
        ways = {
            "http": http,
            "grpc": grpc,
            "oip": lambda content: (grpc if "call" in content else http)(
                {"listener": "oip", **content}
            ),
            "configuration": commands,
            "commands": commands,
        }
        places = {str(made): "<packages>", str(stack.directory): "<stack>", token: "<token>"}
        try:
            yield World(stack, ways, Mask(places))
        finally:
            grpc.close()


def record(made: Path, only: str) -> dict[str, Any]:
    """The outcomes by name of case, and the names of metrics after them."""
    outcomes = {}
    with world(made) as running:
        for case in cases.read(only):
            try:
                outcome = running.senders[case.kind](case.content)
            except senders.Unsendable:
                continue
            outcomes[case.name] = running.mask(outcome)
        text = running.stack.serve.get("/metrics")[1]
        outcomes["metrics"] = running.mask(sorted(set(_SAMPLE.findall(text))))
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    outcomes = record(options.packages, options.only)
    options.output.write_text(json.dumps(outcomes, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
