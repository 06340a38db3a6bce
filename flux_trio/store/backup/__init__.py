"""Copies of a state directory: made while its instance runs, and restored to another directory.

A *backup* is a directory with the files of a state directory and a mark, `backup.json`. No instance
starts in it. Its copy of the state may be older than that of its instance, and the jobs in it may
have gone on since. So a state directory that is restored from it starts no job that a backup has,
unless an administrator wants it: see `restoring`.
"""

from flux_trio.store.backup.files import BackupError, Mark, read_mark
from flux_trio.store.backup.restoring import Restored, restore
from flux_trio.store.backup.taking import take

__all__ = ["BackupError", "Mark", "Restored", "read_mark", "restore", "take"]
