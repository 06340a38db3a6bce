"""Editions: the payloads of the RFCs, and what differs between versions of the RFCs, as values.

An `Edition` has a codec for each payload and answers named questions; code asks the edition it was
given and never compares its name. A file per RFC (`rfc27`, `rfc28`, `rfc32`) holds the payloads as
types whose fields are the RFC's keys: no other package names a key. Neither edition of RFC 27 or 32
has a version number on the wire, so an instance is told which it speaks.
"""

from flux_trio.editions.classic import CLASSIC
from flux_trio.editions.codec import Codec
from flux_trio.editions.current import CURRENT
from flux_trio.editions.edition import Edition

EDITIONS = {CLASSIC.name: CLASSIC}
"""The editions that an instance may start with, by name."""

__all__ = ["CLASSIC", "CURRENT", "EDITIONS", "Codec", "Edition"]
