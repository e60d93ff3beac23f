"""Starts an engine again when it has ended."""

import contextlib
import threading
from typing import Any

from outrigger_testenv.processes import ProcessError


class Supervisor:
    """Starts the engine again whenever it has ended, as a kubelet does, until the context ends.

    `engine` has a `process` and `start()`.
    """

    def __init__(self, engine: Any):
        self._engine = engine
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.crashes = 0

    def __enter__(self) -> "Supervisor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            if not self._engine.process.running:
                self.crashes += 1
                # It may end again before it has answered.
                with contextlib.suppress(ProcessError):
                    self._engine.start()
