"""The processes that figures are measured on: engine, control plane and proxy with the reference
model.
"""

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

from outrigger_testenv.bench.figure import Failed
from outrigger_testenv.bench.generator import CONTROL_PLANE, ENGINE, ONE_FRAME, PROXY, Side
from outrigger_testenv.bench.messages import Messages
from outrigger_testenv.bench.programs import ECHO_PROXY, Commit, Program
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.processes import Process, free_ports, listens
from outrigger_testenv.stack import Stack, merge

MODEL = "reference"
KEY_VALUE, COLUMNAR, JSON = "kv", "columnar", "json"

# The limit of the control plane's memory in the figures of many callers.
MEMORY = "512MiB"

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

    def through(self, form: str, frame: int = ONE_FRAME) -> Side:
        """The control plane with the engine behind it, for requests of this form."""
        return through(self.stack, self.package, form, frame)

    def direct(self, frame: int = ONE_FRAME) -> Side:
        """The engine called directly, with the tensors that the control plane would send."""
        return direct(self.stack, self.package, frame)

    def proxied(self) -> Side:
        """The proxy that only passes bytes on, called with the same tensors."""
        target, process = self._proxy
        processes = {PROXY: process.pid, ENGINE: self.stack.engine.process.pid}
        arguments = _direct(self.stack, target, self.package, ONE_FRAME)
        return Side("proxy", arguments, processes)

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

    @cached_property
    def inference(self) -> tuple[Stack, ModelPackage]:
        """Engine and control plane with a listener for the Open Inference Protocol, serving the
        model, and its package.
        """
        (port,) = free_ports(1)
        stack = new_stack({"server": {"oip": f"127.0.0.1:{port}"}})
        self.serve_model(self._open.enter_context(stack))
        return stack, self.package

    @cached_property
    def bounded(self) -> Stack:
        """The same, with a limit on the control plane's memory as in a pod."""
        stack = self._open.enter_context(new_stack({"server": {"memory": MEMORY}}))
        self.serve_model(stack)
        return stack

    @cached_property
    def messages(self) -> Messages:
        """The requests that load generators send, and the scores that they must get."""
        return Messages(self.package)

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
        serve(stack, self.package, MODEL)

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


def through(stack: Stack, package: ModelPackage, form: str, frame: int = ONE_FRAME) -> Side:
    """The control plane of a stack with its engine, for requests of this form."""
    arguments = ["--server", stack.serve.target, "--model", MODEL, "--form", form]
    arguments += load_arguments(package, frame)
    return Side(f"control plane, {form}", arguments, processes(stack))


def direct(stack: Stack, package: ModelPackage, frame: int = ONE_FRAME) -> Side:
    """The engine of a stack called directly, with the tensors that the control plane would send."""
    arguments = _direct(stack, stack.engine.endpoint, package, frame)
    return Side("engine", arguments, {ENGINE: stack.engine.process.pid})


def _direct(stack: Stack, endpoint: str, package: ModelPackage, frame: int) -> list[str]:
    (version,) = stack.client().model(MODEL).versions
    # Without a version, the engine may answer for the placeholder beside it.
    servable = ["--servable", version.servable, "--version", str(version.servable_version)]
    return ["--direct", endpoint, *servable, *load_arguments(package, frame)]


def processes(stack: Stack) -> dict[str, int]:
    """The processes of a stack whose CPU time is measured."""
    return {CONTROL_PLANE: stack.serve.process.pid, ENGINE: stack.engine.process.pid}


def serve(stack: Stack, package: ModelPackage, name: str) -> str:
    """Pushes a package to a running stack, and waits until it is served; returns its digest."""
    digest, client = stack.push(package, name), stack.client()
    client.load(name)
    client.wait_until_serving(name, digest)
    return digest


def new_stack(overrides: Mapping[str, Any] | None = None) -> Stack:
    """A stack that is not started. Requests do not need a registry."""
    overrides = merge(_OVERRIDES, overrides or {})
    return Stack(overrides, with_registry=False, threads=THREADS, start=False)


def load_arguments(package: ModelPackage, frame: int = ONE_FRAME) -> list[str]:
    """The generator's arguments for requests of a package, in frames of this size."""
    return ["--frame-size", str(frame), "--package", str(package.directory)]
