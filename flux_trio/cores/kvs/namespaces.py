"""The namespaces of the kvs, as flux-core's programs see them: owner, root, and who may come in.

`primary` is the instance owner's, and holds what the services of flux-core keep there; what only
this project keeps lies outside (`OWN_NAMES`). `job-<id>` is a view of job.<dothex>.guest in
`primary`, so that a link to it need not be stored. Any other namespace has keys of its own.

There are no snapshots: a root is known by how many commits its namespace has had, and a blobref of
it is a name that says nothing else. Only today's is taken. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

import msgspec

from flux_trio.cores.kvs.ops import (
    KEY_CHARS_MAX,
    Append,
    Op,
    Put,
    TreeAsked,
    Unlink,
    check_key,
    checked_bytes,
)
from flux_trio.cores.kvs.trees import Place, normalized, wants_entries
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import OUTPUT, PIECE_CHARS
from flux_trio.editions import flux_kvs, job_requests
from flux_trio.editions.flux_kvs import StoredNamespace
from flux_trio.editions.kvs import Guest, KeysPage
from flux_trio.formats import (
    LOST_AND_FOUND,
    FormatError,
    job_directory_of,
    job_key,
    parse_fluid,
    treeobj,
)
from flux_trio.formats.meanings import JobId, JsonObject, KvsKey
from flux_trio.messages import USERID_UNKNOWN, Errno, FluxError, Request

PRIMARY: Final = flux_kvs.PRIMARY
KNOWN: Final = "kvs-namespace"
"""The directory of what is known of each namespace."""
CONTENTS: Final = "kvs-contents"
"""The directory of the contents of namespaces that are no views."""
OWN_NAMES: Final = (
    *("active", "ended", "job-manager", "housekeeping", "kvs-room"),
    *(LOST_AND_FOUND, KNOWN, CONTENTS),
)
"""The first names of keys outside `primary`."""
NAMESPACES_MAX: Final = 100_000
GUEST_BYTES_MAX: Final = 1 << 24  # that guests write into one namespace
TOLD_BYTES: Final = 4096  # of one namespace: fewer more are not told
NAME_CHARS_MAX: Final = 128
_NAME: Final = re.compile(r"[^.\x00-\x20\x7f-\x9f\ud800-\udfff\U0010ffff]+")
_OUTPUT: Final = f".{OUTPUT}"
_GUEST: Final = ".guest"
_OF_JOB: Final = re.compile(r"job-(0|[1-9][0-9]{0,19})")
HASH: Final = "sha1"
EMPTY_ROOT: Final = treeobj.empty_root(HASH)
_SEQ_DIGITS: Final = 16  # of a blobref, whose last digits are the number of commits


_NAMESPACE: Final = msgspec.json.Decoder(StoredNamespace)


@lru_cache(maxsize=1024)
def _tag(name: str) -> str:
    """Return how the blobrefs of all roots of a namespace begin."""
    return treeobj.blobref(HASH, name.encode())[:-_SEQ_DIGITS]


def start_of(name: str) -> str:
    """Return the key of the root of a namespace, "" for `primary`."""
    if name == PRIMARY:
        return ""
    if match := _OF_JOB.fullmatch(name):
        try:
            return job_key(int(match[1]), "guest")
        except FormatError:
            pass  # it is no job id
    return f"{CONTENTS}.{name}"


class Namespaces(Part):
    """All namespaces; `owner` is the instance owner's."""

    by_name: dict[str, StoredNamespace]
    _by_tag: dict[str, str]
    _read: set[str]
    _told: dict[str, int]

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._read = set()  # namespaces of jobs whose output somebody reads
        self._told = {}  # bytes of a namespace that the job manager was told of
        self._by_tag = {}  # names, by what tells the blobrefs of their roots apart
        self.by_name = {}
        self._add(PRIMARY, StoredNamespace(owner))

    def load(self, page: KeysPage) -> None:
        """Take a page of what is stored. Raises FluxError(EBADMSG) for what cannot be read."""
        for key, value in page.items:
            try:
                found = _NAMESPACE.decode(value or "")
            except msgspec.MsgspecError as error:
                raise FluxError(Errno.EBADMSG, f"{key}: {error}") from None
            self._add(key.removeprefix(f"{KNOWN}."), found)

    def _add(self, name: str, namespace: StoredNamespace) -> None:
        self.by_name[name] = namespace
        self._by_tag[_tag(name)] = name

    def of(self, name: str, request: Request) -> StoredNamespace:
        """Return a namespace that the sender may use. Raises FluxError: ENOTSUP, EPERM."""
        found = self.by_name.get(name)
        if found is None:
            raise FluxError(Errno.ENOTSUP, f"{name}: no such namespace")
        if not request.is_owner and request.userid != found.owner:
            raise FluxError(Errno.EPERM, f"{name}: access is restricted to the namespace's owner")
        return found

    def place(self, asked: flux_kvs.LookupAt, request: Request) -> Place:
        """Return where a lookup is. Raises FluxError."""
        if asked.rootdir is not None:
            name = self._of_root(asked.rootdir)
        elif asked.namespace is not None:
            name = asked.namespace
        else:
            raise FluxError(Errno.EPROTO, f"{request.topic}: expected a namespace or a rootdir")
        self.of(name, request)
        key = normalized(asked.key)
        return Place(name, key, stored_key(name, key))

    def with_root(self, ref: str) -> str | None:
        """Return the namespace whose root has this blobref now; the first that is empty."""
        if ref == EMPTY_ROOT:
            return next((name for name, each in self.by_name.items() if not each.rootseq), None)
        name = self._by_tag.get(ref[:-_SEQ_DIGITS])
        return name if name is not None and self.root(name).rootref == ref else None

    def _of_root(self, rootdir: JsonObject) -> str:
        ref = treeobj.ref_of(rootdir)
        if ref is None:
            raise FluxError(Errno.EINVAL, f"rootdir: expected a dirref, got {rootdir!r:.80}")
        if (name := self.with_root(ref)) is not None:
            return name
        text = "rootdir: snapshots are not kept: expected the root of a namespace as it is now"
        raise FluxError(Errno.EINVAL, text)

    def root(self, name: str) -> flux_kvs.Root:
        seq = self.by_name[name].rootseq
        return flux_kvs.Root(seq, self.ref(name, seq))

    def ref(self, name: str, rootseq: int) -> str:
        """Return the blobref of a root: the true one if nothing was committed, or else a name."""
        if not rootseq:
            return EMPTY_ROOT
        return f"{_tag(name)}{rootseq:0{_SEQ_DIGITS}x}"

    def watched(self, count: Callable[[KvsKey], int], total: int) -> flux_kvs.WatchStats:
        """Return who is watched, from the number of watches at and below a key, and of all."""
        names = [name for name in self.by_name if name != PRIMARY]
        numbers = {name: count(start_of(name)) for name in names}
        views = sum(number for name, number in numbers.items() if _OF_JOB.fullmatch(name))
        numbers[PRIMARY] = total - views - count(CONTENTS)  # some wait for their namespace there
        found = {}
        for name, number in numbers.items():
            if number:
                root, owner = self.root(name), self.by_name[name].owner
                found[name] = flux_kvs.NamespaceWatched(owner, root.rootseq, root.rootref, number)
        return flux_kvs.WatchStats(total, found, len(found))

    def create(self, asked: flux_kvs.NamespaceCreate) -> list[Op]:
        """Add a namespace; return the ops that store it. Raises FluxError."""
        name = asked.namespace
        if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
            text = (
                f"namespace {name!r:.80}: expected at most {NAME_CHARS_MAX} characters, no period, "
                "no blank, no control character"
            )
            raise FluxError(Errno.EINVAL, text)
        if name in self.by_name:
            raise FluxError(Errno.EEXIST, "")  # flux-core says no more
        if asked.rootref != EMPTY_ROOT:
            text = (
                f"rootref: expected {EMPTY_ROOT}, the empty directory, got {asked.rootref!r:.80}: "
                "snapshots are not kept"
            )
            raise FluxError(Errno.EINVAL, text)
        self._check_room(1)
        is_instances = asked.owner in (-1, USERID_UNKNOWN)
        owner = self._owner if is_instances else asked.owner
        self._add(name, StoredNamespace(owner, asked.flags))
        return [self._op(name)]

    def _check_room(self, count: int) -> None:
        if len(self.by_name) + count > NAMESPACES_MAX:
            raise FluxError(Errno.ENOSPC, f"there are {NAMESPACES_MAX} namespaces: remove some")

    def open(self, guests: Iterable[Guest]) -> list[str]:
        """Add the namespaces of jobs that are not there, and return them.

        They are stored when the commit that writes in them is counted. Raises FluxError(ENOSPC).
        """
        new = {flux_kvs.namespace_of(each.id): each.owner for each in guests}
        new = {name: owner for name, owner in new.items() if name not in self.by_name}
        self._check_room(len(new))
        for name, owner in new.items():
            self._add(name, StoredNamespace(owner))
        return list(new)

    def remove(self, name: str) -> list[Op] | None:
        """Remove a namespace; return the ops that do it, None if there is none of that name.

        What a job's namespace holds stays. Raises FluxError(ENOTSUP) for `primary`.
        """
        if name.lower() == PRIMARY:
            raise FluxError(Errno.ENOTSUP, f"{name}: this namespace cannot be removed")
        self._read.discard(name)
        self._told.pop(name, None)
        if self.by_name.pop(name, None) is None:
            return None
        del self._by_tag[_tag(name)]
        start = start_of(name)
        ops: list[Op] = [Unlink(f"{KNOWN}.{name}")]
        return [*ops, Unlink(start)] if start.startswith(f"{CONTENTS}.") else ops

    def listed(self) -> flux_kvs.NamespaceList:
        return flux_kvs.NamespaceList(
            [
                flux_kvs.NamespaceListed(name, each.owner, each.flags)
                for name, each in self.by_name.items()
            ]
        )

    def spend_at_place(self, guests: Iterable[Guest], ops: Iterable[Op]) -> None:
        """Count what the owner of the instance writes in the namespaces of guests' jobs."""
        for each in guests:
            found = self.by_name.get(flux_kvs.namespace_of(each.id))
            if found is not None and found.owner != self._owner:
                start = f"{job_key(each.id, 'guest')}."
                found.nothers += checked_bytes([op for op in ops if op.key.startswith(start)])

    def spend(self, name: str, request: Request, nbytes: int) -> None:
        """Count what is written in the namespace of a guest.

        Raises FluxError(ENOSPC) if a guest writes too much.
        """
        found = self.by_name.get(name)
        if found is None or found.owner == self._owner:
            return
        if request.is_owner:
            found.nothers += nbytes
        elif found.nbytes + nbytes > GUEST_BYTES_MAX:
            text = (
                f"{name}: {found.nbytes} bytes were written, and {nbytes} more are too many: "
                f"at most {GUEST_BYTES_MAX}"
            )
            raise FluxError(Errno.ENOSPC, text)
        else:
            found.nbytes += nbytes

    def room_wanted(self, name: str, nbytes: int) -> job_requests.StoreRoom:
        """Return what a guest's namespace holds with `nbytes` more."""
        match = _OF_JOB.fullmatch(name)
        jobid = int(match[1]) if match else None
        return job_requests.StoreRoom(jobid, self.by_name[name].total + nbytes)

    def untold(self, name: str) -> tuple[JobId, int] | None:
        """Return a guest's job and the bytes of its namespace, if they have grown by TOLD_BYTES."""
        found = self.by_name.get(name)
        if found is None or found.owner == self._owner:
            return None
        match = _OF_JOB.fullmatch(name)
        if match is None or found.total < self._told.get(name, 0) + TOLD_BYTES:
            return None
        self._told[name] = found.total
        return int(match[1]), found.total

    def forget_told(self) -> None:
        """Tell everything again: there is another job manager."""
        self._told = {}

    # The output of a job that runs, which grows piece by piece

    def in_pieces(self, ops: Iterable[Op]) -> list[Op]:
        """Return `ops`, where an append to the output of a job that runs is one to its last piece.

        The next piece begins when the last one is long enough, so that no read is of all of it.
        """
        return [self._in_piece(op) if isinstance(op, Append) else op for op in ops]

    def _in_piece(self, op: Append) -> Append:
        found = self.by_name.get(self.of_output(op.key))
        if found is None:
            return op
        if found.chars >= PIECE_CHARS:
            found.piece, found.chars = found.piece + 1, 0
        found.chars += len(op.text)
        piece = f"{op.key}.{found.piece}" if found.piece else op.key
        return Append(piece, op.text)

    @staticmethod
    def output_in(name: str) -> str:
        """Return the key of the output in a namespace; "" for any but that of a job."""
        start = start_of(name)
        return "" if start.startswith(CONTENTS) else f"{start}.output"

    @staticmethod
    def of_output(key: str) -> str:
        """Return the namespace of the job whose output is at `key`; "" if it is no output."""
        return _of_job_with(key, _OUTPUT)

    def linked_at(self, place: Place) -> str | None:
        """Return the namespace to which flux-core has a link at this key, while its job runs."""
        name = _of_job_with(place.stored, _GUEST)
        return name if place.namespace == PRIMARY and name in self.by_name else None

    def asked(self, place: Place, flags: int) -> TreeAsked:
        """Return what a lookup with `flags` reads."""
        hidden = OWN_NAMES if not place.stored else ()
        in_pieces = bool(self.of_output(place.stored))
        return TreeAsked(place.stored, wants_entries(flags), hidden, in_pieces)

    def begins_to_read(self, key: str) -> int | None:
        """Return the job whose output at `key` is read for the first time while it runs."""
        name = self.of_output(key)
        if name not in self.by_name or name in self._read:
            return None
        self._read.add(name)
        return int(name.removeprefix("job-"))

    def count(self, name: str) -> flux_kvs.Root | None:
        """Count a commit that is durable; return the new root, None without the namespace."""
        if (found := self.by_name.get(name)) is None:
            return None
        found.rootseq += 1
        return self.root(name)

    def counting(self, names: Iterable[str]) -> list[Op]:
        """Return the ops that store the numbers of commits after one more for each of `names`."""
        more: dict[str, int] = {}
        for name in names:
            more[name] = more.get(name, 0) + 1
        return [self._op(name, by) for name, by in more.items() if name in self.by_name]

    def _op(self, name: str, more: int = 0) -> Op:
        found = self.by_name[name]
        stored = msgspec.structs.replace(found, rootseq=found.rootseq + more)
        return Put(f"{KNOWN}.{name}", msgspec.json.encode(stored).decode())


def stored_key(namespace: str, key: str) -> str:
    """Return the key in the store, "" for the root of `primary`. Raises FluxError(EINVAL)."""
    start = start_of(namespace)
    if start:
        stored = f"{start}.{key}" if key else start
        return check_key(stored) if len(stored) > KEY_CHARS_MAX else stored
    if key.partition(".")[0] in OWN_NAMES:
        raise FluxError(Errno.EINVAL, f"{key}: this name is kept for flux-trio's own service store")
    return key


def _of_job_with(key: str, rest: str) -> str:
    """Return the name of the namespace of the job whose `rest` is at `key`; "" for another key."""
    directory = job_directory_of(key) if key.endswith(rest) else None
    if directory is None or len(key) != len(directory) + len(rest):
        return ""
    return f"job-{parse_fluid(directory)}"
