"""The attacked processes: a stack with good models, a lying registry, and programs that discard."""

import json
import re
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import grpc

from outrigger_testenv import authority, images, variants
from outrigger_testenv.attack import layouts, lying, neighbour, rows, wide
from outrigger_testenv.attack.attacker import attacker
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import TURNS, Turn
from outrigger_testenv.attack.probes import status
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.client import Client
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.processes import Process, ProcessError, free_ports, listens, resident
from outrigger_testenv.stack import Stack

NEIGHBOUR, WIDE = "good/neighbour", "good/wide"
SERVER = {"server": {"memory": "512MiB"}}
# Descriptors that the control plane may open: the usual soft limit, and a hard limit above it.
_FILES = ["prlimit", "--nofile=1024:16384", "--"]
_MORE_FILES = ["prlimit", "--nofile=16384", "--"]
# A new caller must be answered within this time.
_ANSWER = 10.0
_ADMINISTER = 10
# Control characters other than the ends of lines.
_CONTROL = re.compile("[^\\n -~\u00a0-\uffff]")
# Messages have at most 4 KiB; a line of the log may quote a message and its causes.
_LINE = 16 << 10
# Bytes of memory that may stay, and the time within which the rest goes back to the kernel.
KEPT, _SETTLED = 90_000_000, 60.0
# A registry that sends nothing is given up after this time; a dripping one sends sooner.
_REGISTRY_TIMEOUT = "6s"


class Scene:
    """Starts each process on its first use. Use it as a context manager."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._others: dict[Callable[[Scene], Stack], Stack] = {}
        self._levels: dict[int, int] = {}
        self.directory = Path(
            self._open.enter_context(tempfile.TemporaryDirectory(prefix="outrigger-attack-"))
        )

    def __enter__(self) -> "Scene":
        return self

    def __exit__(self, *error: object) -> None:
        self._open.__exit__(*error)

    @cached_property
    def stack(self) -> Stack:
        """The stack, with its good models loaded."""
        self.layouts.mkdir()
        stack = Stack(self._config(), self._listed(), start=False)
        stack.serve.process.command[:0] = _FILES
        served = stack.serve.config["images"]
        served["plain_http"] = [*served["plain_http"], *vars(self.lying).values()]
        # Without the list, the repositories of all configured models are allowed.
        served["allowed"] = []
        self._open.enter_context(stack)
        stack.start()
        self._push_good(stack)
        self._load_good(stack)
        return stack

    def secured(self) -> Stack:
        """A stack, for `other`, whose gRPC listener has TLS, with the good models loaded."""
        return self.further("health", "admin")

    def further(
        self, *plain: str, models: Sequence[Mapping[str, Any]] = (), **config: Any
    ) -> Stack:
        """A stack, for `other`, with these listeners in clear, these models configured, and the
        good models loaded.
        """
        stack = Stack({**SERVER, "tls": self._tls(*plain), **config}, models, start=False)
        stack.start()
        self._push_good(stack)
        self._load_good(stack)
        return stack

    def level(self, process: Process) -> int:
        """Bytes of memory that a process had when this was first called for it."""
        return self._levels.setdefault(process.pid, resident(process.pid))

    def kept(self) -> int:
        """Bytes of memory that the control plane has beyond its level: at most `KEPT`, or what is
        left after a minute.
        """
        process = self.stack.serve.process
        level = self.level(process)
        with suppress(ProcessError):
            process.wait_until(lambda: resident(process.pid) - level <= KEPT, _SETTLED)
        return resident(process.pid) - level

    def fresh(self, stack: Stack) -> None:
        """Replaces a control plane that an attack has broken."""
        for make, other in list(self._others.items()):
            if other is stack:
                del self._others[make]
                stack.close()
                return
        stack.serve.process.kill()
        if not stack.engine.process.running:
            stack.engine.start()
        stack.serve.start()
        self._load_good(stack)

    def other(self, make: Callable[["Scene"], Stack]) -> Stack:
        """A stack of a case of its own, made and started on its first use."""
        if make not in self._others:
            self._others[make] = self._open.enter_context(make(self))
        return self._others[make]

    @property
    def package(self) -> ModelPackage:
        """The neighbour's package."""
        return self._good[NEIGHBOUR]

    @property
    def layouts(self) -> Path:
        """The directory of hostile layouts, which the configuration lists."""
        return self.directory / "layouts"

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The files of a good package, to be made hostile."""
        return images.files_of(self.package.directory)

    @cached_property
    def lying(self) -> lying.Hosts:
        """The addresses of the lying registry, which is started."""
        hosts = lying.Hosts(*(f"127.0.0.1:{port}" for port in free_ports(3)))
        self._open.callback(lying.process(hosts, self.directory / "lying.log").kill)
        return hosts

    def address(self, listener: str, stack: Stack | None = None) -> str:
        """The address of a listener: grpc, http, health, admin, xgboost_serving or oip."""
        return (stack or self.stack).serve.config["server"][listener]

    def discards(self, tls: bool) -> str:
        """The address of the program that discards."""
        return self._discards_tls if tls else self._discards_plain

    def neighbour(self, turn: Turn, stack: Stack | None = None) -> neighbour.Report:
        """Predicts for the time of a turn with the neighbour's model."""
        target, package = self.address("grpc", stack), self.package.directory
        trusted = self._certificate.authority if _has_tls(stack or self.stack) else None
        load = neighbour.steady(turn.rate)
        return neighbour.call(target, NEIGHBOUR, package, turn.seconds, load, authority=trusted)

    @contextmanager
    def attackers(
        self, function: Callable[..., Any], count: int = 1, **arguments: Any
    ) -> Iterator[list[Process]]:
        """Runs processes that call the function, until the body ends."""
        logs = [self.directory / f"{function.__name__}-{number}.log" for number in range(count)]
        processes = [attacker(function, log, **arguments) for log in logs]
        try:
            for each in processes:
                each.start()
            yield processes
        finally:
            for each in processes:
                each.kill()

    def push(self, layers: Sequence[bytes], name: str, label: str, kind: str) -> None:
        """Pushes layers as a model; another label makes another digest."""
        registry, repository = self.stack.registry, f"models/{name}"
        labels = {"turn": label}
        images.push_layers(registry, repository, "latest", layers, labels=labels, kind=kind)

    def load(
        self, name: str, timeout: float = 120.0, stack: Stack | None = None
    ) -> OutriggerError | None:
        """Asks for a model; returns the error, or none if it is loaded."""
        with self._client(stack or self.stack, timeout) as client:
            try:
                client.load(name)
            except OutriggerError as error:
                return error
        return None

    def expect(self, name: str, *reasons: str, timeout: float = 240.0, fault: str = "") -> str:
        """Asks for a model that must be refused for one of the reasons, with the fault in its
        message; returns the reason.
        """
        error = self.load(name, timeout)
        got = (error.reason or error.code.name) if error else "loaded"
        if got not in reasons:
            raise Broken(f"{name}: {got} instead of {' or '.join(reasons)}")
        if error and fault not in error.message:
            raise Broken(f"{name}: its fault is not {fault!r}: {error.message}")
        return got

    def administer(self, name: str) -> None:
        """Loads a model as an operator does. Raises Broken."""
        done = self.stack.serve.run("models", "load", name, "--timeout", f"{_ADMINISTER}s")
        if done.returncode != 0:
            raise Broken(f"models load: {done.stderr.strip()[-200:]}")

    def check_answers(self, stack: Stack | None = None) -> None:
        """Raises Broken if a new caller is not answered over gRPC and over HTTP."""
        if error := self.load(NEIGHBOUR, _ANSWER, stack):
            raise Broken(f"a new caller of gRPC: {error}")
        trust = ssl.create_default_context(cafile=self._certificate.authority)
        answered = status(self.address("http", stack), "/v1/models", _ANSWER, trust)
        if answered != 200:
            raise Broken(f"a new caller of HTTP is answered {answered}")

    def check_text(self, names: Sequence[str]) -> None:
        """Raises Broken if text of these refused models has become a line of the log or of a
        command's output, or a control character there.
        """
        log = (self.stack.logs / "serve.log").read_text(errors="replace")
        shown = {"serve.log": log, "models list": self.stack.serve.run("models", "list").stdout}
        for name in names:
            for verb in ("why", "show"):
                shown[f"models {verb}"] = self.stack.serve.run("models", verb, name).stdout
            if lying.FORGED not in shown["models why"]:
                raise Broken("models why does not quote the text, so the case shows nothing")
        for where, text in shown.items():
            if any(line.startswith(lying.FORGED) for line in text.splitlines()):
                raise Broken(f"a false audit line is in {where}")
            if where != "serve.log" and _CONTROL.search(text):
                raise Broken(f"{where} has control characters")
            if len(max(text.splitlines(), key=len)) > _LINE:
                raise Broken(f"{where} has a line of more than {_LINE} characters")

    def _config(self) -> dict[str, Any]:
        docker = self.directory / "docker"
        docker.mkdir()
        (docker / "config.json").write_text(json.dumps(lying.credentials(self.lying)))
        return {
            "server": {**SERVER["server"], **_further()},
            "tls": self._tls("grpc", "health", "admin", "xgboost_serving", "oip"),
            "store": {"max_size": f"{lying.STORE // lying.GIB}GiB"},
            "images": {
                "docker_config": str(docker),
                "poll_interval": "5s",
                "timeout": _REGISTRY_TIMEOUT,
            },
        }

    def _tls(self, *plain: str) -> dict[str, str]:
        """The configuration of TLS, with these listeners in clear."""
        files = {"certificate": str(self._certificate.file), "key": str(self._certificate.key)}
        return {**files, **dict.fromkeys(plain, "plain")}

    def _listed(self) -> list[dict[str, str]]:
        hosts, turns = vars(self.lying), range(TURNS)
        lied = [(name, f"{hosts[host]}/{name}/model") for name, host in lying.REPOSITORIES.items()]
        kinds = [f"{kind}-{number}" for kind in layouts.KINDS for number in turns]
        laid = [(name, f"oci:{self.layouts / name}") for name in kinds]
        return [{"name": f"bad/{name}", "image": image} for name, image in lied + laid]

    def _client(self, stack: Stack, timeout: float = 30.0) -> Client:
        trusted = self._certificate.authority.read_bytes()
        credentials = grpc.ssl_channel_credentials(trusted) if _has_tls(stack) else None
        return Client(stack.serve.target, timeout, credentials)

    def _push_good(self, stack: Stack) -> None:
        for name, package in self._good.items():
            stack.push(package, name)

    def _load_good(self, stack: Stack) -> None:
        with self._client(stack) as client:
            for name in self._good:
                client.load(name)

    @cached_property
    def _good(self) -> dict[str, ModelPackage]:
        return {
            NEIGHBOUR: variants.tiny(self.directory / "neighbour", 7),
            WIDE: wide.package(self.directory / "wide"),
            rows.MODEL: rows.package(self.directory / "rows"),
            rows.LEAVES: rows.package_of_leaves(self.directory / "leaves"),
        }

    @cached_property
    def _certificate(self) -> authority.Certificate:
        return authority.certificate(self.directory / "tls", "127.0.0.1")

    @cached_property
    def _discards_plain(self) -> str:
        return self._discard()

    @cached_property
    def _discards_tls(self) -> str:
        return self._discard(self._certificate.file, self._certificate.key)

    def _discard(self, *files: Path) -> str:
        (port,) = free_ports(1)
        command = [sys.executable, "-m", "outrigger_testenv.attack.sink", str(port), *files]
        process = Process("discards", [*_MORE_FILES, *command], self.directory / "discards.log")
        self._open.callback(process.kill)
        process.start()
        process.wait_until(lambda: listens(port))
        return f"127.0.0.1:{port}"


def _further() -> dict[str, str]:
    """The addresses of the listeners that are off by default."""
    ports = zip(("xgboost_serving", "oip"), free_ports(2), strict=True)
    return {listener: f"127.0.0.1:{port}" for listener, port in ports}


def _has_tls(stack: Stack) -> bool:
    """True if the stack's gRPC listener has TLS."""
    return stack.serve.config["tls"].get("grpc") != "plain"


def during(
    scene: Scene, turn: Turn, function: Callable[..., Any], count: int = 1, **arguments: Any
) -> None:
    """Attacks with processes until the neighbour has been measured."""
    # Attackers start before the neighbour's measurement, and end with it.
    with scene.attackers(function, count, seconds=turn.seconds + 60, **arguments):
        turn.wait()
