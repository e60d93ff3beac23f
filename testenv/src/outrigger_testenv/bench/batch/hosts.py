"""Hosts of batch jobs whose capacity and faults are given, as processes."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from outrigger_testenv.bench.batch import server
from outrigger_testenv.bench.batch.server import Report
from outrigger_testenv.processes import Process, free_ports, listens

# The longest time until the end of a process, in seconds.
_PATIENCE = 15.0


class Host:
    """A host that is not started. `settings` are those of the server, without its port and file."""

    def __init__(self, directory: Path, name: str, **settings: Any):
        (self.port,) = free_ports(1)
        self.endpoint = f"127.0.0.1:{self.port}"
        self._file = directory / f"{name}.json"
        self._first = directory / f"{name}.json.first"
        given = server.Settings(port=self.port, report=str(self._file), **settings)
        command = [sys.executable, "-m", server.__name__, json.dumps(asdict(given))]
        self.process = Process(name, command, directory / f"{name}.log")

    def start(self) -> None:
        """Starts it, and waits until it can be called."""
        for file in (self._file, self._first):
            file.unlink(missing_ok=True)
        self.process.start()
        self.process.wait_until(lambda: listens(self.port))

    def stop(self) -> Report:
        """Ends it; returns its report."""
        self.process.stop(_PATIENCE)
        return Report(**json.loads(self._file.read_text()))

    def first(self) -> float | None:
        """The time of the first request since its start, in seconds since 1970."""
        text = self._first.read_text() if self._first.exists() else ""
        return float(text) if text else None


@contextmanager
def running(
    directory: Path, settings: Mapping[str, Mapping[str, Any]]
) -> Iterator[dict[str, Host]]:
    """Running hosts, by their names in `settings`."""
    with ExitStack() as opened:
        hosts = {name: Host(directory, name, **given) for name, given in settings.items()}
        for host in hosts.values():
            opened.callback(host.process.kill)
            host.start()
        yield hosts
