"""A way to a server on loopback that can be cut and mended."""

import socket
import threading
from contextlib import suppress

from outrigger_testenv.processes import free_ports

_LOOPBACK = "127.0.0.1"


class Relay:
    """Passes connections on to a port of loopback. While it is cut, connections are refused."""

    def __init__(self, target: int):
        self._target = target
        (self.port,) = free_ports(1)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None

    def __enter__(self) -> "Relay":
        self.mend()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def mend(self) -> None:
        """Accepts connections."""
        self._listener = socket.create_server((_LOOPBACK, self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Refuses connections, and resets those that are open."""
        if self._listener is None:
            return
        # A thread that accepts is woken by the first, and not by the second.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._listener = None
        with self._lock:
            for each in self._open:
                _close(each)
            self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                here, _ = listener.accept()
            except OSError:
                return
            try:
                there = socket.create_connection((_LOOPBACK, self._target))
            except OSError:
                here.close()
                continue
            with self._lock:
                # The listener was closed meanwhile.
                if listener.fileno() < 0:
                    _close(here)
                    _close(there)
                    return
                self._open |= {here, there}
            for pair in ((here, there), (there, here)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        """Copies bytes until either end closes."""
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with self._lock:
            for each in (source, target):
                _close(each)
                self._open.discard(each)


def _close(end: socket.socket) -> None:
    """Closes a connection, and ends the calls of other threads on it."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
