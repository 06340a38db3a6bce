"""Transports: how messages get from one peer to another.

`Inbox` is the queue that one task reads.
"""

from flux_trio.transports.inbox import Inbox

__all__ = ["Inbox"]
