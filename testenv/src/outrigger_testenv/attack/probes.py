"""Probes of the health listener with the chart's timeouts, more often than the kubelet's."""

import http.client
import ssl
import threading
import time
from collections.abc import Sequence

import yaml

from outrigger_testenv.binary import repository

# The kubelet probes every 2 and 10 s; a short case would see too few of those.
_EVERY = 0.1
SLOW = 1.0
_PROBE = {"/healthz": "liveness", "/readyz": "readiness"}


def timeouts() -> dict[str, float]:
    """The timeout of each probed path in the chart's values."""
    values = yaml.safe_load((repository() / "deploy/helm/outrigger/values.yaml").read_text())
    return {path: float(values["probes"][name]["timeoutSeconds"]) for path, name in _PROBE.items()}


class Probes:
    """Probes each path on a thread of its own. Use it as a context manager."""

    def __init__(self, address: str, paths: Sequence[str]):
        limits = timeouts()
        self._address = address
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(path, limits[path]), daemon=True)
            for path in paths
        ]
        self.seconds: list[float] = []
        self.failed = 0

    @property
    def slow(self) -> int:
        """Probes that took longer than a second, failed ones included."""
        return sum(each > SLOW for each in self.seconds)

    def __enter__(self) -> "Probes":
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for each in self._threads:
            each.join()

    def _run(self, path: str, timeout: float) -> None:
        while not self._over.wait(_EVERY):
            began = time.monotonic()
            answered = probe(self._address, path, timeout)
            with self._lock:
                self.seconds.append(time.monotonic() - began)
                self.failed += not answered


def probe(address: str, path: str, timeout: float) -> bool:
    """Whether a new connection is answered with 200 in time, as the kubelet requires it."""
    return status(address, path, timeout) == 200


def status(address: str, path: str, timeout: float = 5.0, tls: ssl.SSLContext | None = None) -> int:
    """The status of a GET on a new connection; 0 if there is no answer in time."""
    connection = (
        http.client.HTTPSConnection(address, timeout=timeout, context=tls)
        if tls
        else http.client.HTTPConnection(address, timeout=timeout)
    )
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
