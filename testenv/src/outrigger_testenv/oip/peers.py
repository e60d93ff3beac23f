"""Triton, MLServer and KServe's SDK as processes on loopback, with the models of the checks."""

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from outrigger_testenv.oip import environments
from outrigger_testenv.oip.models import ALL, NEVER, PLACES, Served
from outrigger_testenv.processes import Process, free_ports, listens

_SERVED = Path(__file__).parent / "served"
_LOOPBACK = "127.0.0.1"
# Longest start of a server with all models on a busy machine, in seconds.
_START = 300.0
# The limit in bytes of a message over gRPC where it is a setting.
_LARGEST = 100 << 20
_SHARED_MEMORY = Path("/dev/shm")

_TRITON_TYPES = {"BYTES": "STRING"}
# How Triton's `slow` refuses what would wait too long.
_SHORT_QUEUE = """dynamic_batching {
  max_queue_delay_microseconds: 1000
  default_queue_policy {
    max_queue_size: 2 default_timeout_microseconds: 300000
    timeout_action: REJECT allow_timeout_override: true
  }
}"""
# How Triton's `places` refuses what would wait behind 16 requests.
_QUEUE = """dynamic_batching {
  default_queue_policy { max_queue_size: 16 timeout_action: REJECT }
}"""
_BATCHING = "dynamic_batching { max_queue_delay_microseconds: 20000 }"


class Peer:
    """A server of another project in `directory`, which is new. It is a context manager; `rest` and
    `grpc` are its addresses, `repository` is the directory that it loads models from, and `largest`
    is the limit in bytes of a message over gRPC if it has one. Raises environments.Missing if it
    cannot be installed.
    """

    largest: int | None = None

    def __init__(self, directory: Path, served: Sequence[Served] = ALL):
        self.directory = directory
        self.repository = directory
        self.served = served
        self.ports = free_ports(3)
        web, grpc, _ = self.ports
        self.rest, self.grpc = f"{_LOOPBACK}:{web}", f"{_LOOPBACK}:{grpc}"
        directory.mkdir(parents=True)
        self.process = Process(type(self).__name__, self.command(), directory / "server.log")

    def command(self) -> list[str | Path]:
        """Writes what the server reads, and returns its command."""
        raise NotImplementedError

    def __enter__(self) -> "Peer":
        self.process.start()
        try:
            self.process.wait_until(self.is_up, _START)
            self.started()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_up(self) -> bool:
        """True if it serves all of its models that can become ready."""
        names = [each.name for each in self.served if each.name != NEVER]
        ready = (f"/v2/models/{name}/ready" for name in names)
        return all(self.get(path) == 200 for path in ["/v2/health/live", *ready]) and listens(
            self.ports[1]
        )

    def started(self) -> None:
        """Does what is left to do after the start."""

    def close(self) -> None:
        """Ends it."""
        self.process.stop()

    def get(self, path: str) -> int | None:
        """The status of a request, or None if there is no answer."""
        try:
            with urllib.request.urlopen(f"http://{self.rest}{path}", timeout=5) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None


class Triton(Peer):
    """Triton from the wheel of pytriton, without its proxy. It has the Python backend only."""

    def command(self) -> list[str | Path]:
        home = environments.environment(environments.TRITON)
        site, libraries, version = _interpreter(home / "bin" / "python")
        server = site / "pytriton" / "tritonserver"
        backend = self.directory / "backends" / "python"
        shutil.copytree(server / "backends" / "python", backend)
        shutil.copy(
            server / "python_backend_stubs" / version / "triton_python_backend_stub", backend
        )
        self.repository = self.directory / "models"
        self.repository.mkdir()
        for each in self.served:
            self._write(each)
        self._memory_before = _shared_memory()
        web, grpc, metrics = self.ports
        names = [each.name for each in self.served if each.name != NEVER]
        # The embedded interpreter finds its packages through the `python` on PATH.
        return [
            *("env", "--unset=PYTHONHOME", "--unset=PYTHONPATH"),
            f"PATH={home / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            f"LD_LIBRARY_PATH={libraries}:{site / 'nvidia_pytriton.libs'}",
            server / "bin" / "tritonserver",
            f"--model-repository={self.repository}",
            f"--backend-directory={backend.parent}",
            *(f"--{kind}-address={_LOOPBACK}" for kind in ("http", "grpc", "metrics")),
            *(f"--http-port={web}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"),
            *("--allow-gpu-metrics=false", "--model-control-mode=explicit"),
            *("--exit-timeout-secs=2", *(f"--load-model={name}" for name in names)),
        ]

    def _write(self, served: Served) -> None:
        """Writes a model into the repository."""
        model = self.repository / served.name
        (model / "1").mkdir(parents=True)
        shutil.copy(_SERVED / "triton_model.py", model / "1" / "model.py")
        (model / "config.pbtxt").write_text(_configuration(served))

    def started(self) -> None:
        """Begins to load the model that does not become ready."""
        if any(each.name == NEVER for each in self.served):
            with suppress(TimeoutError):
                self._load(NEVER, 1)

    def resize(self, served: Served, instances: int) -> None:
        """Changes the number of instances of a model that is loaded, and returns when it is so."""
        changed = replace(served, instances=instances)
        (self.repository / served.name / "config.pbtxt").write_text(_configuration(changed))
        self._load(served.name, _START)

    def _load(self, name: str, timeout: float) -> None:
        """Loads a model, again if it is loaded and its configuration has changed."""
        path = f"http://{self.rest}/v2/repository/models/{name}/load"
        urllib.request.urlopen(urllib.request.Request(path, b"{}"), timeout=timeout).close()

    def close(self) -> None:
        """Ends it, and removes the shared memory that killed stubs leave behind."""
        self.process.stop()
        for left in _shared_memory() - self._memory_before - _mapped():
            left.unlink(missing_ok=True)


class MLServer(Peer):
    """MLServer, in one process."""

    largest = _LARGEST

    def command(self) -> list[str | Path]:
        program = environments.environment(environments.MLSERVER) / "bin" / "mlserver"
        web, grpc, metrics = self.ports
        settings = {"host": _LOOPBACK, "http_port": web, "grpc_port": grpc}
        settings |= {"metrics_port": metrics, "parallel_workers": 0, "debug": False}
        settings["grpc_max_message_length"] = self.largest
        # Its own loads at its start may meet those of a control plane, and then it ends.
        settings["load_models_at_startup"] = bool(self.served)
        _write_json(self.directory / "settings.json", settings)
        for each in self.served:
            model = self.directory / each.name
            model.mkdir()
            shutil.copy(_SERVED / "mlserver_models.py", model / "mlserver_models.py")
            described = {"name": each.name, "implementation": "mlserver_models.Model"}
            if each.name == "pair":
                described |= {"max_batch_size": each.max_batch_size, "max_batch_time": 0.02}
            _write_json(model / "model-settings.json", described)
        return [program, "start", self.directory]


class KServe(Peer):
    """A server of KServe's SDK."""

    largest = _LARGEST

    def command(self) -> list[str | Path]:
        program = environments.python(environments.KSERVE)
        web, grpc, _ = self.ports
        names = [each.name for each in self.served]
        flags = [f"--grpc_max_{way}_message_length={self.largest}" for way in ("send", "receive")]
        return [program, _SERVED / "kserve_server.py", str(web), str(grpc), *names, *flags]


PEERS: Mapping[str, Callable[..., Peer]] = {
    "Triton": Triton,
    "MLServer": MLServer,
    "KServe": KServe,
}
"""The servers by the names that the table gives them."""


def _configuration(served: Served) -> str:
    """Triton's configuration of a model."""
    datatype = f"TYPE_{_TRITON_TYPES.get(served.datatype, served.datatype)}"

    def tensors(names: Sequence[str]) -> str:
        dimensions = list(served.dimensions)
        each = [f'{{ name: "{name}" data_type: {datatype} dims: {dimensions} }}' for name in names]
        return "[" + ", ".join(each) + "]"

    lines = [
        f'name: "{served.name}"\nbackend: "python"\nmax_batch_size: {served.max_batch_size}',
        f"input {tensors(served.inputs)}\noutput {tensors(served.outputs)}",
        f"instance_group [ {{ kind: KIND_CPU count: {served.instances} }} ]",
        {"slow": _SHORT_QUEUE, "pair": _BATCHING, PLACES: _QUEUE}.get(served.name, ""),
    ]
    return "\n".join(lines) + "\n"


def _interpreter(python: Path) -> tuple[Path, Path, str]:
    """Where an interpreter has its packages and its library, and its version."""
    program = (
        "import sysconfig as s; print(s.get_path('purelib'), s.get_config_var('LIBDIR'),"
        " s.get_python_version(), sep='\\n')"
    )
    lines = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True)
    site, libraries, version = lines.stdout.splitlines()
    return Path(site), Path(libraries), version


def _shared_memory() -> set[Path]:
    """The parts of shared memory that Triton's Python backend keeps."""
    return set(_SHARED_MEMORY.glob("triton_python_backend_shm_region_*"))


def _mapped() -> set[Path]:
    """The files of shared memory that a process uses, perhaps of another Triton."""
    used = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        # A process may end, or belong to another user.
        with suppress(OSError):
            words = maps.read_text().split()
            used |= {Path(word) for word in words if word.startswith(f"{_SHARED_MEMORY}/")}
    return used


def _write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content))
