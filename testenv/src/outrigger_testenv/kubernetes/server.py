"""A running API server."""

import shutil
import tempfile
from pathlib import Path

from outrigger_testenv.kubernetes import program
from outrigger_testenv.kubernetes.client import Client
from outrigger_testenv.processes import Process

# Longest start on a busy machine, in seconds.
_START = 120.0


class Server:
    """An API server with a state of its own, which ends with it. It is a context manager; `client`
    has all rights. Raises program.Missing if it is not built.
    """

    def __init__(self) -> None:
        # A short path: the server has sockets in it.
        self._directory = Path(tempfile.mkdtemp(prefix="outrigger-kube-"))
        self.kubeconfig = self._directory / "kubeconfig"
        command = [program.installed(), self._directory]
        self._process = Process("kubernetes", command, self._directory / "server.log")
        self.client: Client

    def __enter__(self) -> "Server":
        self._process.start()
        try:
            self._process.wait_until(self.kubeconfig.is_file, _START)
            self.client = Client(self.kubeconfig)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        # Its state is of no more use.
        self._process.kill()
        shutil.rmtree(self._directory, ignore_errors=True)
