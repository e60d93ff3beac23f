"""Registry, engine and control plane as real processes, wired together."""

import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from outrigger_testenv import registry
from outrigger_testenv.binary import outrigger
from outrigger_testenv.builder import ModelPackage
from outrigger_testenv.client import Client
from outrigger_testenv.processes import Process, free_ports

ENGINE_ENV = "OUTRIGGER_TESTENV_ENGINE"
KEEP_ENV = "OUTRIGGER_TESTENV_KEEP"
LIBRARY_ENV = "OUTRIGGER_TENSORFLOW"


class Engine:
    """TensorFlow Serving, or the local engine in its place, with the same flags.

    With `batching`, BatchingParameters in protobuf's text format, it batches requests.
    """

    def __init__(self, directory: Path, log: Path, threads: int = 2, batching: str | None = None):
        directory.mkdir(parents=True, exist_ok=True)
        self.endpoint = f"unix:{directory / 'engine.sock'}"
        self._socket = directory / "engine.sock"
        empty = directory / "models.config"
        empty.write_text("model_config_list {}\n")
        flags = {
            "port": 0,
            "grpc_socket_path": self._socket,
            "model_config_file": empty,
            "file_system_poll_wait_seconds": 1,
            "num_load_threads": 2,
            "num_unload_threads": 1,
            "max_num_load_retries": 0,
            # More than the control plane has in flight (engine.max_in_flight). The default, four
            # per core, is exhausted by eight callers and one status request.
            "grpc_max_threads": 160,
            "tensorflow_intra_op_parallelism": threads,
            "tensorflow_inter_op_parallelism": threads,
        }
        if batching is not None:
            parameters = directory / "batching.config"
            parameters.write_text(batching)
            flags |= {"enable_batching": "true", "batching_parameters_file": parameters}
        command = [*engine_program(), *(f"--{name}={value}" for name, value in flags.items())]
        self.process = Process("engine", command, log, library())

    def start(self) -> None:
        """Starts the engine without models and waits until it answers."""
        self._socket.unlink(missing_ok=True)
        self.process.start()
        self.process.wait_until(self._answers)

    def _answers(self) -> bool:
        # Engines of earlier commits refuse gRPC's default, the encoded path of the socket.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "localhost")]
        with grpc.insecure_channel(self.endpoint, options) as channel:
            status = channel.unary_unary("/tensorflow.serving.ModelService/GetModelStatus")
            try:
                # A status request in protobuf: field 1 is the model spec, whose field 1 is the name
                # "?".
                status(b"\x0a\x03\x0a\x01?", timeout=1)
            except grpc.RpcError as error:
                return error.code() == grpc.StatusCode.NOT_FOUND
        return True


def engine_program() -> list[str | Path]:
    """The command of the engine that OUTRIGGER_TESTENV_ENGINE names, or else of the local one."""
    official = os.environ.get(ENGINE_ENV)
    return [official] if official else [outrigger(), "engine"]


def library() -> dict[str, str]:
    """The environment by which binaries find this interpreter's TensorFlow. It is not imported."""
    if LIBRARY_ENV in os.environ:
        return {}
    from importlib.util import find_spec

    found = find_spec("tensorflow")
    return {LIBRARY_ENV: str(Path(found.origin).parent)} if found else {}


class ControlPlane:
    """`outrigger serve` with a configuration of its own."""

    def __init__(self, directory: Path, log: Path, config: Mapping[str, Any]):
        directory.mkdir(parents=True, exist_ok=True)
        self.file = directory / "outrigger.yaml"
        self.config = dict(config)
        listen = self.config["server"]
        self.target, self.http = listen["grpc"], f"http://{listen['http']}"
        self.admin, self.health = listen["admin"], f"http://{listen['health']}"
        # The operator's token, which the server writes.
        self.token = directory / "control" / "token"
        # A variable instead of a setting, because versions that do not know it ignore it.
        self._variables = {"OUTRIGGER_AUTH_TOKEN_FILE": str(self.token)}
        command = [outrigger(), "serve", "--config", self.file]
        self.process = Process("serve", command, log, self._variables)

    def start(self, wait: bool = True) -> None:
        """Starts it and waits until it is ready, or with wait=False only until it answers."""
        self.write_config()
        self.process.start()
        self.process.wait_until(lambda: self.get("/readyz" if wait else "/healthz")[0] == 200)

    def run(self, *arguments: str | Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Runs a command of the binary for the admin listener, as the server's user."""
        return subprocess.run(
            [outrigger(), *arguments, "--admin", self.admin],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **self._variables},
            check=False,
        )

    def write_config(self) -> None:
        """Replaces the file of the configuration, at once and as a whole."""
        written = self.file.with_suffix(".new")
        # JSON is valid YAML.
        written.write_text(json.dumps(self.config, indent=2))
        written.replace(self.file)

    def reloads(self, outcome: str) -> float:
        """The number of reloads of the configuration with this outcome."""
        return self.metrics()[f'outrigger_config_reloads_total{{outcome="{outcome}"}}']

    def use(self, binary: Path) -> None:
        """Runs another binary from the next start on."""
        self.process.command[0] = str(binary)

    def get(self, path: str) -> tuple[int, str]:
        """Sends GET to the health listener; status 0 if nothing answers."""
        try:
            with urllib.request.urlopen(self.health + path, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metrics(self) -> dict[str, float]:
        """The samples of /metrics, by name with labels."""
        lines = self.get("/metrics")[1].splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


class Stack:
    """All processes of a pod, on loopback, in one temporary directory.

    Use it as a context manager. The directory is kept, and its path printed, if the body fails or
    OUTRIGGER_TESTENV_KEEP is set. `overrides` are merged into the control plane's configuration.
    Without docker-registry (or with_registry=False) models come from `oci:DIR` references. With
    start=False the caller starts the parts. `batching` is passed to the engine; the control plane
    knows of it by `overrides` only. With engine=False there is no process beside the control plane,
    whose only engine is that for tree models.
    """

    def __init__(
        self,
        overrides: Mapping[str, Any] | None = None,
        models: Sequence[Mapping[str, Any]] = (),
        with_registry: bool | None = None,
        threads: int = 2,
        start: bool = True,
        *,
        batching: str | None = None,
        engine: bool = True,
    ):
        self.keep = bool(os.environ.get(KEEP_ENV))
        self._start = start
        self.directory = Path(tempfile.mkdtemp(prefix="outrigger-"))
        self.logs = self.directory / "logs"
        self.logs.mkdir()
        ports = free_ports(5)
        wanted = registry.available() if with_registry is None else with_registry
        self.registry = (
            registry.Registry(self.directory / "registry", ports[0], self.logs / "registry.log")
            if wanted
            else None
        )
        log = self.logs / "engine.log"
        self.engine = Engine(self.directory / "engine", log, threads, batching) if engine else None
        config = merge(self._config(ports[1:], list(models)), overrides or {})
        self.serve = ControlPlane(self.directory / "serve", self.logs / "serve.log", config)
        self._clients: list[Client] = []

    @property
    def images(self) -> str:
        """The prefix of models' references: a registry's repository, or a layout directory."""
        if self.registry is not None:
            return f"{self.registry.host}/models"
        return f"oci:{self.directory / 'images'}"

    def reference(self, model: str, tag: str = "latest") -> str:
        """The reference under which the control plane looks up a model's tag."""
        return f"{self.images}/{model}:{tag}"

    def push(
        self,
        package: ModelPackage,
        model: str,
        tag: str = "latest",
        labels: Mapping[str, str] | None = None,
    ) -> str:
        """Pushes a package to the repository of its model; returns its digest."""
        plain_http = [self.registry.host] if self.registry else []
        return package.push(self.reference(model, tag), labels, plain_http)

    def start(self) -> "Stack":
        """Starts the registry (if there is one), the engine and the control plane."""
        if self.registry is not None:
            self.registry.start()
        if self.engine is not None:
            self.engine.start()
        self.serve.start()
        return self

    def stop(self) -> None:
        """Closes all clients and ends all processes."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        for process in self.processes():
            process.kill()

    def processes(self) -> list[Process]:
        """All processes; each comes before those it depends on."""
        parts = [self.serve, self.engine, self.registry]
        return [part.process for part in parts if part is not None]

    def client(self, timeout: float = 30.0) -> Client:
        """Opens a connection to the control plane, closed with the stack."""
        client = Client(self.serve.target, timeout)
        self._clients.append(client)
        return client

    def check(self) -> None:
        """Fails if a process has ended by itself."""
        for process in self.processes():
            if process.exit_code not in (None, -9, -15):
                raise RuntimeError(f"{process.name} ended with {process.exit_code}{process.tail()}")

    def __enter__(self) -> "Stack":
        try:
            return self.start() if self._start else self
        except BaseException:
            self.close(failed=True)
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(failed=kind is not None)

    def close(self, failed: bool = False) -> None:
        """Ends everything; keeps the directory if something failed."""
        self.stop()
        if failed or self.keep:
            print(f"\nlogs: {self.logs}")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _config(self, ports: list[int], models: list[Mapping[str, Any]]) -> dict[str, Any]:
        address = [f"127.0.0.1:{port}" for port in ports]
        listeners = dict(zip(("grpc", "http", "health", "admin"), address, strict=True))
        return {
            # No load balancer needs time to notice the shutdown.
            "server": {**listeners, "shutdown_delay": "0s"},
            **(
                {"engine": {"endpoint": self.engine.endpoint}}
                if self.engine
                else {"engines": {"trees": {"kind": "trees"}}}
            ),
            "store": {"path": str(self.directory / "store"), "max_size": "2GiB"},
            "images": {
                "repository": self.images,
                "allowed": [self.images],
                "poll_interval": "1s",
                "plain_http": [self.registry.host] if self.registry else [],
            },
            "models": [dict(model) for model in models],
        }


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merges deeply: a mapping in `changes` is merged into the one in `base`, other values replace
    it.
    """
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged
