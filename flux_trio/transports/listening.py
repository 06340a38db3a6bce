"""Unix sockets of an instance: where it listens, and which user has connected."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trio

BACKLOG: Final = 128  # connections that wait to be accepted; as for a port

_PEERCRED: Final = struct.Struct("iII")  # pid, uid, gid (unix(7))


@contextmanager
def bound(path: Path, mode: int) -> Iterator[trio.SocketListener]:
    """Yield a listener at `path`; its `mode` is set before anybody can connect.

    No other server may use the path. The file stays, since only the caller knows when no other
    server can have replaced it. Raises OSError if the socket cannot be created.
    """
    path.unlink(missing_ok=True)  # left by an instance that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(os.fspath(path))
        path.chmod(mode)
        listening.listen(BACKLOG)
        yield trio.SocketListener(trio.socket.from_stdlib_socket(listening))


def peer_userid(stream: trio.SocketStream) -> int:
    """Return the userid of the process that has connected, as the kernel knows it."""
    peer = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
    _pid, userid, _gid = _PEERCRED.unpack(peer)
    return int(userid)
