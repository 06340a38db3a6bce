"""The errors that a plugin raises, and those that it gets when it breaks a rule."""

from __future__ import annotations


class Reject(Exception):
    """Raised by a handler to refuse. `reason` is one sentence, shown to the user word for word.

    Without a reason it is a failure of the handler.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotAllowed(Exception):
    """An operation that the job's state does not allow; the text names the rule."""


class HandlerFailed(Exception):
    """A handler returned a value that its hook does not allow, or was late; the text says where."""


class PluginError(Exception):
    """A plugin that cannot be loaded, found or removed; the text names the rule."""
