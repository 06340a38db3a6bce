"""flux-core's requests to the kvs: `kvs.*` and `kvs-watch.*` of the edition current. Pure.

A lookup is a read of the store. A commit of flux-core's becomes ops of the store; where keys lead
through directories, what is there is read first, in a round of its own for each namespace. A watch
is a lookup that is made again after each commit that may change its answer.

Everybody is served; a guest reads and writes the namespaces that he owns (RFC 16).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from flux_trio.cores.kvs.damage import Damages
from flux_trio.cores.kvs.held_requests import Commit, FactsRead, TreeRead
from flux_trio.cores.kvs.namespaces import Namespaces, start_of, stored_key
from flux_trio.cores.kvs.ops import Damaged, KvsOutbox, TreeFound, checked_bytes
from flux_trio.cores.kvs.tree_watches import TreeWatches
from flux_trio.cores.kvs.trees import (
    asked_of,
    check_flags,
    normalized,
    operations_of,
    ops_of,
    tree_of,
)
from flux_trio.cores.state import Part
from flux_trio.editions import exec_requests, flux_kvs, job_requests
from flux_trio.formats import treeobj
from flux_trio.formats.meanings import JsonObject
from flux_trio.messages import (
    Errno,
    Flag,
    FluxError,
    Request,
    Response,
    respond,
    respond_error,
    topics,
)

FACTS_MAX: Final = 10_000
"""Keys that are read before one commit."""


class VersionWait(msgspec.Struct, frozen=True):
    """A kvs.wait-version request."""

    request: Request
    namespace: str
    rootseq: int


class FluxRequests(Part):
    """Takes the requests, and answers those that wait for no store."""

    _waits: list[VersionWait]

    def __init__(
        self, outbox: KvsOutbox, namespaces: Namespaces, watches: TreeWatches, damages: Damages
    ) -> None:
        self._outbox = outbox
        self._namespaces = namespaces
        self._watches = watches
        self._damages = damages
        self._waits = []  # as many as the senders may have open

    # Requests; each returns what waits for the store

    def lookup(self, request: Request) -> TreeRead:
        """kvs.lookup, kvs.lookup-plus: read a key."""
        asked = flux_kvs.LOOKUP.read(request)
        check_flags(request, asked.flags, flux_kvs.LOOKUP_FLAGS)
        place = self._namespaces.place(asked, request)
        self.is_read(place.stored)
        return TreeRead(request, [self._namespaces.asked(place, asked.flags)], place, asked.flags)

    def watch(self, request: Request) -> None:
        """kvs-watch.lookup: follow a key."""
        self.is_read(self._watches.open(request))

    def is_read(self, key: str) -> None:
        """Let the execution service store the output of a job that runs, once somebody reads it."""
        jobid = self._namespaces.begins_to_read(key)
        if jobid is not None:
            copy = exec_requests.COPY.write(exec_requests.Copy(jobid))
            self._outbox.send(Request(topics.EXEC_COPY, copy, flags=int(Flag.NORESPONSE)))

    def commit(self, request: Request) -> FactsRead:
        """kvs.commit: read what is in the way of the keys, which may be nothing."""
        asked = flux_kvs.COMMIT.read(request)
        self._namespaces.of(asked.namespace, request)
        name, ops = asked.namespace, operations_of(self._without_links(asked))
        ops = [msgspec.structs.replace(op, key=stored_key(name, op.key)) for op in ops]
        facts = asked_of(ops, start_of(name))
        if len(facts) > FACTS_MAX:
            text = f"{len(facts)} directories: at most {FACTS_MAX} in one commit"
            raise FluxError(Errno.EMSGSIZE, text)
        return FactsRead(request, facts, name, ops, checked_bytes(ops) if ops else 0)

    def _without_links(self, asked: flux_kvs.Commit) -> list[flux_kvs.Operation]:
        """Return the operations without those that say what is so already.

        A link to the namespace of a job, or its root, at the place of which the namespace is a
        view.
        """
        return [op for op in asked.ops if not self._is_so(asked.namespace, op)]

    def _is_so(self, namespace: str, op: flux_kvs.Operation) -> bool:
        ref = treeobj.ref_of(op.dirent)
        target = self._namespaces.with_root(ref) if ref else treeobj.linked_namespace(op.dirent)
        if target is None:
            return False
        return stored_key(namespace, normalized(op.key)) == start_of(target)

    def facts_read(self, read: FactsRead, found: Iterable[TreeFound] = ()) -> Commit | None:
        """Return the commit that `read` leads to; None if it is refused."""
        known = {asked.key: each for asked, each in zip(read.asked, found, strict=True)}
        try:
            ops = ops_of(read.ops, known)
            self._namespaces.spend(read.namespace, read.request, read.nbytes)
        except FluxError as error:
            self._outbox.send(respond_error(read.request, error.errnum, error.text))
            return None
        ops = self._namespaces.in_pieces(ops)
        return Commit(read.request, ops, read.nbytes, namespace=read.namespace)

    def getroot(self, request: Request) -> None:
        """kvs.getroot: answer with the root of a namespace."""
        name = flux_kvs.GET_ROOT.read(request).namespace
        found = self._namespaces.of(name, request)
        root = self._namespaces.root(name)
        answer = flux_kvs.NamespaceRoot(found.owner, root.rootseq, root.rootref, found.flags, name)
        self._outbox.send(respond(request, flux_kvs.NAMESPACE_ROOT.write(answer)))

    def wait_version(self, request: Request) -> None:
        """kvs.wait-version: answer when a namespace has had so many commits."""
        asked = flux_kvs.WAIT_VERSION.read(request)
        found = self._namespaces.of(asked.namespace, request)
        if found.rootseq < asked.rootseq:
            self._waits.append(VersionWait(request, asked.namespace, asked.rootseq))
        else:
            self._answer_root(request, asked.namespace)

    def _answer_root(self, request: Request, namespace: str) -> None:
        root = flux_kvs.ROOT.write(self._namespaces.root(namespace))
        self._outbox.send(respond(request, root))

    def create(self, request: Request) -> Commit:
        """kvs.namespace-create: it is answered when it is durable."""
        asked = flux_kvs.NAMESPACE_CREATE.read(request)
        ops = self._namespaces.create(asked)
        self._watches.created(asked.namespace)
        return Commit(request, ops, checked_bytes(ops))

    def at_place(self, commit: Commit) -> list[str]:
        """Let a commit write in the namespaces of its `guests`, and remove those that are over.

        Returns the namespaces that are made. Raises FluxError(ENOSPC).
        """
        new = self._namespaces.open(commit.guests)
        self._namespaces.spend_at_place(commit.guests, commit.ops)
        commit.ops[:] = self._namespaces.in_pieces(commit.ops)
        for each in commit.guests:
            if each.over:
                commit.ops.extend(self._namespaces.remove(flux_kvs.namespace_of(each.id)) or ())
        return new

    def remove(self, request: Request) -> Commit | None:
        """kvs.namespace-remove: it is answered when it is durable."""
        name = flux_kvs.NAMESPACE.read(request).namespace
        ops = self._namespaces.remove(name)
        if ops is None:
            self._outbox.send(respond(request))
            return None
        self._removed(name)
        return Commit(request, ops, checked_bytes(ops))

    def _removed(self, name: str) -> None:
        """Tell those who wait for something of a namespace."""
        gone = f"{name}: the namespace was removed"
        self._watches.removed(name, gone)
        for wait in [each for each in self._waits if each.namespace == name]:
            self._waits.remove(wait)
            self._outbox.send(respond_error(wait.request, Errno.ENOTSUP, gone))

    def list_namespaces(self, request: Request) -> None:
        """kvs.namespace-list: answer with all namespaces."""
        listed = flux_kvs.NAMESPACE_LIST.write(self._namespaces.listed())
        self._outbox.send(respond(request, listed))

    # What the store has done

    def read(self, read: TreeRead, found: Sequence[TreeFound]) -> None:
        """Answer a lookup, or what has asked for it as a watch."""
        (tree,) = found
        self._damages.report(damaged_in(tree))
        if read.watch is not None:
            self._watches.read(read, tree)
            return
        request, answer = read.request, None
        try:
            val = self._link(read) or tree_of(tree, read.place.key, read.flags)
        except FluxError as error:
            if error.errnum != Errno.ENOENT or request.topic != topics.KVS_LOOKUP_PLUS:
                answer = respond_error(request, error.errnum, error.text)
            val, errnum = None, error.errnum
        else:
            errnum = 0
        if answer is None and request.topic == topics.KVS_LOOKUP_PLUS:
            answer = self._plus(read, val, errnum)
        elif answer is None:
            answer = respond(request, flux_kvs.FOUND.write(flux_kvs.Found(val or {})))
        self._outbox.send(answer)

    def _link(self, read: TreeRead) -> JsonObject | None:
        """Return the link that is answered for the view of a job's namespace, if it is asked for.

        A lookup that does not ask for it follows the link, so it finds what the view shows.
        """
        name = self._namespaces.linked_at(read.place) if read.flags & flux_kvs.READLINK else None
        return None if name is None else treeobj.link(name)

    def _plus(self, read: TreeRead, val: JsonObject | None, errnum: int) -> Response | None:
        try:
            root = self._namespaces.root(read.place.namespace)
        except KeyError:
            return respond_error(read.request, Errno.ENOTSUP, "the namespace was removed")
        plus = flux_kvs.FoundPlus(root.rootseq, root.rootref, val, errnum or None)
        return respond(read.request, flux_kvs.FOUND_PLUS.write(plus))

    def watch_failed(self, read: TreeRead, errnum: int, text: str) -> None:
        """End a watch whose key cannot be read."""
        self._watches.failed(read, errnum, text)

    def tell_bytes(self, names: Iterable[str]) -> None:
        """Tell the job manager how much is in the namespaces of guests' jobs; it may be away."""
        for name in names:
            if (untold := self._namespaces.untold(name)) is not None:
                told = job_requests.STORED.write(job_requests.Stored(*untold))
                self._outbox.send(Request(topics.JOB_STORED, told, flags=int(Flag.NORESPONSE)))

    def tell_all_bytes(self) -> None:
        """Tell it of all namespaces: another job manager begins."""
        self._namespaces.forget_told()
        self.tell_bytes(self._namespaces.by_name)

    def committed(self, commit: Commit) -> None:
        """Answer a commit that is durable; tell those who wait for it."""
        roots = {name: self._namespaces.count(name) for name in commit.namespaces}
        self.tell_bytes(roots)
        root = roots[commit.namespace or flux_kvs.PRIMARY]
        if not commit.namespace:
            self._outbox.send(respond(commit.request, {}))
        elif root is None:
            text = f"{commit.namespace}: the namespace was removed"
            self._outbox.send(respond_error(commit.request, Errno.ENOTSUP, text))
        else:
            self._outbox.send(respond(commit.request, flux_kvs.ROOT.write(root)))
        if self._waits:
            self._answer_waits(roots)
        self._watches.changed(commit.ops)
        for each in commit.guests:
            name = flux_kvs.namespace_of(each.id)
            if each.over:
                self._removed(name)
            elif (root := roots[name]) is not None and root.rootseq == 1:
                self._watches.created(name)

    def _answer_waits(self, roots: Mapping[str, flux_kvs.Root | None]) -> None:
        for wait in list(self._waits):
            root = roots.get(wait.namespace)
            if root is not None and wait.rootseq <= root.rootseq:
                self._waits.remove(wait)
                self._answer_root(wait.request, wait.namespace)

    def leave(self, sender: str) -> None:
        """Forget what a peer that is gone waits for."""
        self._waits = [each for each in self._waits if each.request.sender != sender]


def damaged_in(found: TreeFound) -> Iterable[Damaged]:
    """Return what of a value or a directory differs from what was committed."""
    return [each for each in (found.value, *found.entries.values()) if isinstance(each, Damaged)]
