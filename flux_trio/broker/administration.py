"""Who has changed an instance: a line in the log for each change that a client has made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flux_trio.messages import Level, Request, Response, service_of, topics
from flux_trio.transports import Credentials

_QUEUE: Final = ("name", "all", "reason")
_TARGETS: Final = ("targets", "mode", "reason")
_MODULE: Final = ("name", "path", "exec")

SHOWN: Final = {
    topics.JOB_QUEUE_ENABLE: ("enable", *_QUEUE),
    topics.JOB_QUEUE_START: ("start", *_QUEUE),
    topics.JOB_JOBTAP: ("load", "remove"),
    topics.JOB_PURGE: ("age_limit", "num_limit"),
    topics.RESOURCE_DRAIN: _TARGETS,
    topics.RESOURCE_UNDRAIN: _TARGETS,
    topics.RESOURCE_DOWN: _TARGETS,
    topics.RESOURCE_UP: _TARGETS,
    topics.CONFIG_LOAD: (),
    topics.CONFIG_RELOAD: (),
    topics.MODULE_LOAD: _MODULE,
    topics.MODULE_RELOAD: _MODULE,
    topics.MODULE_REMOVE: _MODULE,
    topics.MODULE_KILL: _MODULE,
    topics.BROKER_TOKEN: ("userid",),
    topics.BROKER_REVOKE: ("userid",),
    topics.BROKER_BACKUP: ("directory",),
    topics.BROKER_SHUTDOWN: (),
    topics.LOG_CLEAR: (),
}
"""The requests that change an instance, and the keys that the log shows.

It shows no configuration, of the instance or of a plugin: passwords may be in it.
"""

WriteLog = Callable[[int, str, str], None]  # level, party, text


class Changes:
    """The changes that one client has asked for and that are not made yet."""

    def __init__(self, credentials: Credentials, write_log: WriteLog) -> None:
        self._by = f"by {credentials.name} (uid {credentials.userid})"
        self._write_log = write_log
        self._asked: dict[int, str] = {}  # by matchtag

    def begin(self, request: Request) -> None:
        """Remember a request if it changes the instance."""
        keys = SHOWN.get(request.topic)
        if keys is not None:
            payload = request.payload if isinstance(request.payload, dict) else {}
            shown = [
                f"{key}={_shown(payload[key])}" for key in keys if payload.get(key) is not None
            ]
            self._asked[request.matchtag] = " ".join([request.topic, *shown, self._by])

    def end(self, response: Response) -> None:
        """Log a change that was made; what was refused is told to the client only."""
        text = self._asked.pop(response.matchtag, None)
        is_refused = response.errnum or "refusal" in (response.payload or ())
        if text is not None and not is_refused:
            self._write_log(Level.INFO, service_of(response.topic), text)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
