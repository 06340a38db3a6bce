"""Errors: on the wire a POSIX errnum and a text (RFC 6), in the code one type per cause."""

from __future__ import annotations

from enum import IntEnum


class Errno(IntEnum):
    """Errnums with Linux's numbers, on every platform (RFC 6: 38, 61, 71, 125)."""

    EPERM = 1
    ENOENT = 2
    EIO = 5
    ECHILD = 10
    EAGAIN = 11
    EACCES = 13
    EBUSY = 16
    EEXIST = 17
    ENOTDIR = 20
    EISDIR = 21
    EINVAL = 22
    ENOSPC = 28
    EPIPE = 32
    ENOSYS = 38
    ENODATA = 61
    EPROTO = 71
    EBADMSG = 74
    EOVERFLOW = 75
    EMSGSIZE = 90
    ENOTSUP = 95
    ECONNRESET = 104
    EHOSTUNREACH = 113
    ECANCELED = 125


_TEXT = {
    Errno.EPERM: "Operation not permitted",
    Errno.ENOENT: "No such file or directory",
    Errno.EIO: "Input/output error",
    Errno.ECHILD: "No child processes",
    Errno.EAGAIN: "Resource temporarily unavailable",
    Errno.EACCES: "Permission denied",
    Errno.EBUSY: "Device or resource busy",
    Errno.EEXIST: "File exists",
    Errno.ENOTDIR: "Not a directory",
    Errno.EISDIR: "Is a directory",
    Errno.EINVAL: "Invalid argument",
    Errno.ENOSPC: "No space left on device",
    Errno.EPIPE: "Broken pipe",
    Errno.ENOSYS: "Function not implemented",
    Errno.ENODATA: "No data available",
    Errno.EPROTO: "Protocol error",
    Errno.EBADMSG: "Bad message",  # file systems report a wrong checksum with it
    Errno.EOVERFLOW: "Value too large for defined data type",
    Errno.EMSGSIZE: "Message too long",
    Errno.ENOTSUP: "Operation not supported",
    Errno.ECONNRESET: "Connection reset by peer",
    Errno.EHOSTUNREACH: "No route to host",
    Errno.ECANCELED: "Operation canceled",
}


class FluxError(Exception):
    """An error response: `errnum` is positive, and `text` is for a person to read."""

    def __init__(self, errnum: int, text: str = "") -> None:
        super().__init__(errnum, text)
        self.errnum = errnum
        self.text = text or errno_text(errnum)

    def __str__(self) -> str:
        return self.text


class ProtocolError(Exception):
    """A party violated a protocol."""


class LocalProtocolError(ProtocolError):
    """The local side was about to violate a protocol: a bug in this program."""


class RemoteProtocolError(ProtocolError):
    """The remote side violated a protocol; the text says what was expected and what came."""


def errno_text(errnum: int) -> str:
    """Return the text of `errnum`, for example "Operation not permitted"."""
    try:
        return _TEXT[Errno(errnum)]
    except ValueError:
        return f"error {errnum}"
