"""The service manager that has started this process, such as systemd: sd_notify(3).

The manager names a datagram socket in NOTIFY_SOCKET and learns there when the instance is ready,
when it reads its configuration again, and when it ends. A line that the manager does not take
within `SEND_S_MAX` is lost.
"""

from __future__ import annotations

import socket
import time
from collections.abc import MutableMapping
from typing import Final

from flux_trio.process.console import STDERR

NOTIFY_VARIABLE: Final = "NOTIFY_SOCKET"
SEND_S_MAX: Final = 1.0  # the instance waits for no longer than this
STATUS_CHARS_MAX: Final = 1000


class ServiceManager:
    """Tells the manager at `address` the state of this process; "" if there is no manager."""

    def __init__(self, address: str = "") -> None:
        self._address = address

    def __bool__(self) -> bool:
        return bool(self._address)

    def ready(self, status: str) -> None:
        """Commands can reach the instance, or a reload has ended; `status` is for users."""
        self._send("READY=1", _status(status))

    def reloading(self) -> None:
        """The instance reads its configuration again; `ready` comes next."""
        microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={microseconds}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", _status(status))

    def _send(self, *assignments: str) -> None:
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):  # an abstract socket (unix(7))
            address = "\0" + address[1:]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sending:
                sending.settimeout(SEND_S_MAX)
                sending.sendto("\n".join(assignments).encode(), address)
        except OSError as error:
            STDERR.write(f"flux-trio: {NOTIFY_VARIABLE} {self._address}: {error}")


def service_manager(environ: MutableMapping[str, str]) -> ServiceManager:
    """Return the manager that `environ` names, and remove the name.

    Otherwise a command of the instance, for example another instance, would speak for this one.
    """
    return ServiceManager(environ.pop(NOTIFY_VARIABLE, ""))


def _status(text: str) -> str:
    """Return the assignment for a text, which must be one line."""
    return f"STATUS={' '.join(text.split())[:STATUS_CHARS_MAX]}"
