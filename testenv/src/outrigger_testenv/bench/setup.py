"""The processes that figures are measured on: engine, control plane and proxy with the reference
model.
"""

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from outrigger_testenv.bench.figure import Failed
from outrigger_testenv.bench.generator import CONTROL_PLANE, ENGINE, PROXY, Side
from outrigger_testenv.bench.programs import ECHO_PROXY, Commit, Program
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.processes import Process, free_ports, listens
from outrigger_testenv.stack import Stack

MODEL = "reference"
KEY_VALUE, COLUMNAR = "kv", "columnar"

# The product's default; tests use a second.
_OVERRIDES = {"images": {"poll_interval": "30s"}}
# TensorFlow's settings, in the engine and without it: its own kernels take a seventh less time than
# oneDNN's for a model this small.
TENSORFLOW = {"TF_ENABLE_ONEDNN_OPTS": "0"}
# TensorFlow's threads for one operation. Split over more, operations as small as the reference
# model's spend longer on synchronization than on work.
THREADS = 1


class Setup:
    """Starts each process on its first use. Use it as a context manager."""

    def __init__(self, programs: Mapping[Program, Path], before: Commit | None = None):
        self.programs = programs
        self._before = before
        self._open = ExitStack()

    def __enter__(self) -> "Setup":
        return self

    def __exit__(self, *error: object) -> None:
        self._open.__exit__(*error)

    def through(self, form: str) -> Side:
        """The control plane with the engine behind it, for requests of this form."""
        return through(self.stack, self.package, form)

    def direct(self) -> Side:
        """The engine called directly, with the tensors that the control plane would send."""
        engine = self.stack.engine
        return Side("engine", self._direct(engine.endpoint), {ENGINE: engine.process.pid})

    def proxied(self) -> Side:
        """The proxy that only passes bytes on, called with the same tensors."""
        target, process = self._proxy
        processes = {PROXY: process.pid, ENGINE: self.stack.engine.process.pid}
        return Side("proxy", self._direct(target), processes)

    @cached_property
    def package(self) -> ModelPackage:
        """The reference model as a directory."""
        # Imported here because importing TensorFlow takes seconds.
        from outrigger_testenv.reference import reference_model

        directory = tempfile.TemporaryDirectory(prefix="outrigger-bench-")
        return reference_model(Path(self._open.enter_context(directory)))

    @cached_property
    def stack(self) -> Stack:
        """Engine and control plane, serving the model."""
        stack = self._open.enter_context(new_stack())
        self.serve_model(stack)
        return stack

    @property
    def before(self) -> Commit:
        """The commit to compare with. Raises Failed if none was given."""
        if self._before is None:
            raise Failed("no commit to compare with: BEFORE=commit")
        return self._before

    @property
    def binaries(self) -> tuple[Path, Path]:
        """This commit's binary and that of the commit before."""
        before = self.before.binary
        return outrigger(), before

    @cached_property
    def both(self) -> tuple[Stack, Stack]:
        """This commit's control plane and that of the commit before, both serving the model."""
        stacks = [self.stack_of(binary) for binary in self.binaries]
        for stack in stacks:
            self._open.enter_context(stack)
            self.serve_model(stack)
        return tuple(stacks)

    def stack_of(self, binary: Path) -> Stack:
        """A stack, not started, of this control plane and the engine of the commit before."""
        stack = new_stack()
        stack.engine.process.command[0] = str(self.before.binary)
        stack.serve.use(binary)
        return stack

    def serve_model(self, stack: Stack) -> None:
        """Starts the parts of a stack and loads the model."""
        stack.start()
        digest = stack.push(self.package, MODEL)
        client = stack.client()
        client.load(MODEL)
        client.wait_until_serving(MODEL, digest)

    def _direct(self, endpoint: str) -> list[str]:
        (version,) = self.stack.client().model(MODEL).versions
        return ["--direct", endpoint, "--servable", version.servable, *_package(self.package)]

    @cached_property
    def _proxy(self) -> tuple[str, Process]:
        (port,) = free_ports(1)
        listen, engine = f"127.0.0.1:{port}", self.stack.engine.endpoint
        command = [self.programs[ECHO_PROXY], listen, engine]
        process = Process("echo proxy", command, self.stack.logs / "proxy.log")
        self._open.callback(process.kill)
        process.start()
        process.wait_until(lambda: listens(port))
        return listen, process


def through(stack: Stack, package: ModelPackage, form: str) -> Side:
    """The control plane of a stack with its engine, for requests of this form."""
    serve, engine = stack.serve, stack.engine
    arguments = ["--server", serve.target, "--model", MODEL, "--form", form, *_package(package)]
    processes = {CONTROL_PLANE: serve.process.pid, ENGINE: engine.process.pid}
    return Side(f"control plane, {form}", arguments, processes)


def new_stack() -> Stack:
    """A stack that is not started. Requests do not need a registry."""
    return Stack(_OVERRIDES, with_registry=False, threads=THREADS, start=False)


def _package(package: ModelPackage) -> list[str]:
    return ["--package", str(package.directory)]
