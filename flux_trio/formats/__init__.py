"""The formats that messages and files are made of, as pure values: each is parsed strictly and
printed canonically, with one error, `FormatError`, that says where, what was expected and what
came.
"""

from flux_trio.formats.errors import MISSING, FormatError, Words
from flux_trio.formats.hostlist import HOSTS_MAX, Hostlist
from flux_trio.formats.idset import IDS_MAX, Idset

__all__ = [
    "HOSTS_MAX",
    "IDS_MAX",
    "MISSING",
    "FormatError",
    "Hostlist",
    "Idset",
    "Words",
]
