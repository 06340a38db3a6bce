"""What the bridge of the execution service asks of the broker and of the core. Data."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from flux_trio.attach.mail import Forwarded, Mail, OneValueRead
from flux_trio.formats.meanings import JobId
from flux_trio.messages import ROLE_OWNER, Payload, Request
from flux_trio.messages.types import NORESPONSE

LEFTOVERS: Final = "leftovers"
"""The sender of the bridge's own requests to the core."""


class SpecRead(msgspec.Struct, frozen=True):
    """Answers the lookup of J, for a request of the core about a jobspec."""

    request: Request
    id: JobId


class Leftover(msgspec.Struct, frozen=True):
    """A job whose namespace an earlier program has left."""

    id: JobId


class NamespacesListed(msgspec.Struct, frozen=True):
    """Answers the question for all namespaces of the kvs."""


class Acknowledged(msgspec.Struct, frozen=True):
    """Answers a request whose only bad news is an error, which goes to the log."""

    what: str


Call: TypeAlias = Forwarded | SpecRead | OneValueRead | NamespacesListed | Acknowledged


class ExecMail(Mail[Call]):
    """The messages of one turn of the execution service, whose core gets requests of the bridge."""

    def __init__(self, owner: int) -> None:
        super().__init__()
        self._owner = owner

    def tell_core(self, topic: str, payload: Payload, flags: int = NORESPONSE) -> None:
        """Send a request of the instance's owner to the core."""
        owner, role = self._owner, ROLE_OWNER
        request = Request(
            topic, payload, 0, flags, userid=owner, rolemask=role, routes=(LEFTOVERS,)
        )
        self.to_core.append(request)
