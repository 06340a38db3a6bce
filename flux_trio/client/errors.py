"""What can go wrong between a client and its instance; FluxError is what the instance answers."""

from __future__ import annotations


class ClientError(Exception):
    """The base of the others; the text is one sentence for the person who reads it."""


class NoInstance(ClientError):
    """There is no instance to talk to; the text says how to start one."""


class AccessDenied(ClientError):
    """The instance is there and does not know the token."""


class ConnectionLost(ClientError):
    """The connection to the instance broke, or the instance ended it."""
