"""Editions: the payloads of the RFCs, and what differs between versions of the RFCs, as values.

An `Edition` has a codec for each payload that editions differ in, and answers named questions. Code
asks the edition that it was given; it never compares the edition's name. Each RFC has a file
(`rfc21`, `rfc24`, `rfc27`, `rfc28`, `rfc32`, `rfc33`) whose types have the RFC's keys as fields.
The other files have payloads that no RFC describes; they are the same in all editions. Cores and
services do not name keys. Messages of RFC 27 and 32 have no version number, so the configuration
says which edition an instance speaks.
"""

from flux_trio.editions.classic import CLASSIC
from flux_trio.editions.codec import Codec
from flux_trio.editions.current import CURRENT
from flux_trio.editions.edition import Edition

EDITIONS = {each.name: each for each in (CLASSIC, CURRENT)}
"""The editions that an instance may start with, by name."""

__all__ = ["CLASSIC", "CURRENT", "EDITIONS", "Codec", "Edition"]
