"""The way of a TCP connection to an instance, that a test can cut: both ends then see it closed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

BYTES_MAX = 1 << 16


class Wire:
    """Passes on what comes to its own address, `uri`."""

    def __init__(self, uri: str) -> None:
        to = urlsplit(uri)
        assert to.hostname is not None
        assert to.port is not None
        self._to = (to.hostname, to.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.uri = f"{to.scheme}://127.0.0.1:{self._listener.getsockname()[1]}{to.path}"
        self._go(self._accept)

    def cut(self) -> None:
        """End all connections that there are; new ones pass."""
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut, and take no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                far = socket.create_connection(self._to)
                self._ends += [near, far]
                self._go(_pass_on, near, far)
                self._go(_pass_on, far, near)

    def _go(self, main: object, *args: socket.socket) -> None:
        thread = threading.Thread(target=main, args=args)  # type: ignore[arg-type]  # as given
        self._threads.append(thread)
        thread.start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(BYTES_MAX):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
    source.close()


@contextmanager
def wire_to(uri: str) -> Iterator[Wire]:
    """A wire that is closed when the block is left."""
    wire = Wire(uri)
    try:
        yield wire
    finally:
        wire.close()
