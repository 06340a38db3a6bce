"""Errors between a client and its instance; an error answer of the instance is a FluxError."""

from __future__ import annotations

import os


class ClientError(Exception):
    """The base class of these errors; the text is one sentence for the user."""


class NoInstance(ClientError):
    """No instance was found; the text says how to start one."""


class InstanceStarting(NoInstance):
    """An instance is starting; it cannot be reached yet."""


class AccessDenied(ClientError):
    """The instance exists, but refuses this user or token."""


class MissingKey(ClientError, KeyError):
    """A response lacks a key that the program reads; perhaps the instance is older."""

    __str__ = Exception.__str__  # that of KeyError shows the text as a Python string


class ConnectionLost(ClientError):
    """The connection to the instance broke, or the instance ended it."""


def check_process(pid: int) -> None:
    """Raise ConnectionLost if this is not the process `pid`, in which the client was opened."""
    if os.getpid() != pid:
        raise ConnectionLost(
            f"this client was opened in process {pid}, of which this one is a fork: "
            "open another one here"
        )
