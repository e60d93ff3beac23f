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
        # Bound as long as the relay lives: nobody else finds the port free while it is cut.
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind((_LOOPBACK, self.port))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None

    def __enter__(self) -> "Relay":
        self.mend()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._holder.close()

    def mend(self) -> None:
        """Accepts connections."""
        self._listener = socket.create_server((_LOOPBACK, self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Refuses connections, and ends those that are open."""
        with self._lock:
            if self._listener is None:
                return
            for each in (self._listener, *self._open):
                _end(each)
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with listener:
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
                threading.Thread(
                    target=self._pass_on, args=(listener, here, there), daemon=True
                ).start()

    def _pass_on(self, listener: socket.socket, here: socket.socket, there: socket.socket) -> None:
        """Copies bytes both ways until either end closes, or the relay is cut."""
        with here, there:
            with self._lock:
                if self._listener is not listener:
                    return
                self._open |= {here, there}
            back = threading.Thread(target=_copy, args=(there, here), daemon=True)
            back.start()
            _copy(here, there)
            back.join()
            with self._lock:
                self._open -= {here, there}


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copies bytes until either end closes, which then ends the other."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    _end(source)
    _end(target)


def _end(each: socket.socket) -> None:
    """Wakes the threads that wait for this socket. The last of them closes it: the number of
    a closed socket may be another's before a thread that knows it calls the kernel.
    """
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
