"""The key-value store: where an instance keeps what must survive it.

`KvsCore` decides order and durability, a `Store` holds the values (`MemoryStore`, `SqliteStore`),
`run` serves `kvs.*`: commit {ops}, lookup {key}, dir and count {prefix}, page {prefix, after,
limit}, watch {key}, watch-cancel.
"""

from flux_trio.services.kvs.core import KvsCore
from flux_trio.services.kvs.fsck import Report, check_file, repair_file
from flux_trio.services.kvs.ops import (
    Append,
    Damaged,
    Fetch,
    Fetched,
    Op,
    Page,
    PageRead,
    Put,
    Stored,
    StoreOps,
    Unlink,
)
from flux_trio.services.kvs.service import run
from flux_trio.services.kvs.sqlite_store import SqliteStore
from flux_trio.services.kvs.stores import MemoryStore, Store, StoreError

__all__ = [
    "Append",
    "Damaged",
    "Fetch",
    "Fetched",
    "KvsCore",
    "MemoryStore",
    "Op",
    "Page",
    "PageRead",
    "Put",
    "Report",
    "SqliteStore",
    "Store",
    "StoreError",
    "StoreOps",
    "Stored",
    "Unlink",
    "check_file",
    "repair_file",
    "run",
]
