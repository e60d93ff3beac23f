"""Load generators that send the same requests: `outrigger bench`, grpc-go, gRPC's C core, and Go's
net/http for JSON.

A server has no say in how its callers frame their messages, so a figure names its client. Each
generator sends every message once before the load, and a run counts only if it got the scores of
the model.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from outrigger_testenv import tools
from outrigger_testenv.bench.figure import Effort, Failed, Skipped
from outrigger_testenv.bench.generator import (
    CONNECTIONS,
    FRAME,
    IN_FLIGHT,
    ONE_FRAME,
    THREADS,
    TREATMENTS,
    Report,
    execute,
)
from outrigger_testenv.bench.messages import Messages
from outrigger_testenv.bench.setup import COLUMNAR, JSON, MODEL, Setup, processes
from outrigger_testenv.binary import outrigger, repository
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.stack import Stack

SOURCE = repository() / "testenv" / "clients" / "go"


@dataclass(frozen=True)
class Call:
    """The requests of a run."""

    form: str = COLUMNAR
    treatments: int = TREATMENTS
    connections: int = CONNECTIONS
    # In a closed loop exactly this number, in an open loop at most.
    in_flight: int = IN_FLIGHT
    # Requests a second of an open loop; `None` for a closed one.
    rate: float | None = None
    # The deadline of a request, seconds.
    timeout: float = 1

    def __str__(self) -> str:
        load = f"{self.in_flight} in flight" if self.rate is None else f"{self.rate:.0f}/s"
        size = f"{self.form}, {self.treatments} treatments"
        return f"{size}, {load}, {self.connections} connections"


@dataclass(frozen=True)
class Served:
    """A control plane that serves the model, and the requests for it."""

    stack: Stack
    package: ModelPackage
    messages: Messages

    def address(self, form: str) -> str:
        """The listener for requests of a form."""
        serve = self.stack.serve
        return serve.http.removeprefix("http://") if form == JSON else serve.target


@dataclass(frozen=True)
class Order:
    """The parts of a generator's command that all of them need."""

    served: Served
    call: Call
    effort: Effort
    # The encoded requests.
    requests: Sequence[Path]
    # The directory for the first answers.
    save: Path

    @property
    def pids(self) -> list[str]:
        """The processes to measure, as NAME=PID."""
        return [f"{name}={pid}" for name, pid in processes(self.served.stack).items()]


class Client(Protocol):
    """A load generator. Its report has the keys of `outrigger bench -o json`."""

    @property
    def name(self) -> str:
        """Its name in tables."""

    def command(self, order: Order) -> list[str]:
        """The command of a run. Raises Skipped if the machine lacks what it needs."""


@dataclass(frozen=True)
class Bench:
    """`outrigger bench`, with messages in frames of this size, compressed or as they are."""

    frame: int = FRAME
    # gzip or zstd.
    compress: str | None = None

    @property
    def name(self) -> str:
        """The name, with the size of frames in KiB and the compression."""
        frames = ", one frame" if self.frame == ONE_FRAME else ""
        return "outrigger bench" + frames + (f", {self.compress}" if self.compress else "")

    def command(self, order: Order) -> list[str]:
        """The command of a run."""
        call, served = order.call, order.served
        threads = min(THREADS, call.connections, call.in_flight)
        command = [str(outrigger()), "bench", "--server", served.address(call.form)]
        command += ["--model", MODEL, "--package", str(served.package.directory)]
        command += ["--form", call.form, "--treatments", str(call.treatments)]
        command += ["--frame-size", str(self.frame), "--save", str(order.save)]
        command += ["--compress", self.compress] if self.compress else []
        command += ["--max"] if call.rate is None else ["--rate", f"{call.rate:g}"]
        command += ["--in-flight", str(call.in_flight), "--connections", str(call.connections)]
        command += ["--threads", str(threads), "--timeout", f"{call.timeout * 1e3:g}ms"]
        command += _duration("--warmup", order.effort.warmup)
        command += _duration("--duration", order.effort.measured)
        for pid in order.pids:
            command += ["--pid", pid]
        return [*command, "--output", "json", "--quiet"]


@dataclass(frozen=True)
class InGo:
    """grpc-go, as callers and most proxies of service meshes use it; or net/http for JSON."""

    name: str

    def command(self, order: Order) -> list[str]:
        """The command of a run. Raises Skipped without Go."""
        call = order.call
        command = [str(go_client()), *_common(order), "-target", order.served.address(call.form)]
        command += ["-json"] if call.form == JSON else []
        if call.rate is not None:
            command += ["-rate", f"{call.rate:g}"]
        return command


@dataclass(frozen=True)
class Core:
    """gRPC's C core, below its libraries for Python, C++, Ruby and PHP."""

    name: str = "grpcio (C core)"

    def command(self, order: Order) -> list[str]:
        """The command of a run. Raises Failed for an open loop, which it does not have."""
        if order.call.rate is not None:
            raise Failed(f"{self.name} has no open loop")
        target = order.served.address(order.call.form)
        module = [sys.executable, "-m", "outrigger_testenv.bench.core"]
        return [*module, *_common(order), "-target", target]


BENCH, ONE, CORE = Bench(), Bench(ONE_FRAME), Core()
GO, GO_HTTP = InGo("grpc-go"), InGo("Go net/http")


def served(setup: Setup, stack: Stack) -> Served:
    """A stack of a setup."""
    return Served(stack, setup.package, setup.messages)


def run(
    client: Client, served: Served, call: Call, effort: Effort, may_fail: bool = False
) -> Report:
    """Runs a load generator once and checks the scores it got. Raises Failed if these are wrong or,
    unless they may, requests fail.
    """
    address = served.address(call.form)
    batch = served.messages.of(address, MODEL, call.form, call.treatments)
    with tempfile.TemporaryDirectory(prefix="outrigger-answers-") as directory:
        order = Order(served, call, effort, batch.requests, Path(directory))
        report = execute(f"{client.name}, {call}", client.command(order), may_fail)
        batch.check(client.name, order.save)
    return report


def _common(order: Order) -> list[str]:
    """The options that the generators in Go and Python share."""
    call, effort = order.call, order.effort
    options = ["-save", str(order.save), "-connections", str(call.connections)]
    options += ["-in-flight", str(call.in_flight), "-timeout", f"{call.timeout * 1e3:g}ms"]
    options += [*_duration("-warmup", effort.warmup), *_duration("-duration", effort.measured)]
    for pid in order.pids:
        options += ["-pid", pid]
    for request in order.requests:
        options += ["-request", str(request)]
    return options


def _duration(option: str, seconds: float) -> list[str]:
    return [option, f"{seconds * 1e3:.0f}ms"]


@cache
def go_client() -> Path:
    """Builds the generator over grpc-go. Raises Skipped without a Go that can, Failed if it does
    not compile.
    """
    go = needs_go()
    target = Path(os.environ.get("CARGO_TARGET_DIR") or repository() / "target")
    program = target.absolute() / "clients" / "client-go"
    # Without the state of the checkout, which git does not give to every user.
    command = [go, "build", "-trimpath", "-buildvcs=false", "-o", str(program), "."]
    # The machine's own Go, and the modules of go.sum as they are.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    done = subprocess.run(
        command, cwd=SOURCE, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Failed(f"go build: {done.stderr.strip()}")
    return program


def needs_go() -> str:
    """The path of a Go that can build the generator. Raises Skipped if there is none."""
    go = tools.go()
    if go is None:
        raise Skipped("Go is not installed: Debian's golang-go, or https://go.dev/dl")
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        [go, "env", "GOVERSION"], env=environment, capture_output=True, text=True, check=False
    )
    wanted = version_of(re.search(r"^go (\S+)$", (SOURCE / "go.mod").read_text(), re.M)[1])
    if version_of(done.stdout) < wanted:
        found = done.stdout.strip() or "unknown"
        raise Skipped(f"Go is {found}, and grpc-go needs {'.'.join(map(str, wanted))}")
    return go


def version_of(text: str) -> tuple[int, ...]:
    """Major and minor version; empty if there is none."""
    found = re.search(r"(\d+)\.(\d+)", text)
    return tuple(int(part) for part in found.groups()) if found else ()
