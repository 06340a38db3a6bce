"""The guest namespaces of all jobs: what each asks of the kvs, and what its answers change."""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.attach import kvs
from flux_trio.attach.exec.guest import EXEC_LOG, PLACES, Contents, Shell
from flux_trio.attach.exec.guest_namespace import (
    GuestNamespace,
    NamespaceEvent,
    NamespaceState,
    NamespaceStates,
)
from flux_trio.attach.exec.mail import (
    GUEST,
    Acknowledged,
    ExecMail,
    NamespaceCall,
    Object,
    OutputOf,
    Step,
)
from flux_trio.attach.kvs import Ask
from flux_trio.cores.exec.job import completed_status
from flux_trio.cores.exec.output import limit_of
from flux_trio.cores.exec.placement import LayoutError, place_tasks
from flux_trio.editions.rfc32 import Start
from flux_trio.formats import FormatError, ResourceSet, format_fluid, job_key, parse_jobspec
from flux_trio.messages import Errno, FluxError, Level, Request, Response, topics
from flux_trio.messages.types import STREAMING

OUTPUT_BYTES: Final = 1 << 30  # of one job, unless its jobspec says otherwise; as flux-core's shell
CREDIT: Final = 8  # pieces of one job's output, of 64 KiB at most, on their way to the kvs
ENOTSUP: Final = 95  # there is no such namespace
SEVERITY_DEBUG: Final = 7
WOKEN: Final = "its processes have ended while no execution service was asked for it"
STREAMS_MAX: Final = 512  # output streams that are open; more jobs wait for one to end

_S, _E = NamespaceState, NamespaceEvent
_OPENING: Final = frozenset(
    {_S.FINDING, _S.MAKING, _S.READING_LOG, _S.READING_PLACES, _S.FURNISHING, _S.LINKING}
)


class GuestNamespaces:
    """`service` is the core's name, `empty_root` an empty directory of the kvs, `rank` ours."""

    def __init__(self, mail: ExecMail, service: str, empty_root: str, rank: int) -> None:
        self._mail = mail
        self._service = service
        self._empty_root = empty_root
        self._rank = rank
        self._by_id: dict[int, GuestNamespace] = {}
        self._states = NamespaceStates()
        self._streams: set[int] = set()  # jobs whose output stream is open
        self._waiting: dict[int, None] = {}  # jobs that run and wait for a stream, in order
        self._changed: dict[int, None] = {}  # namespaces to look at when all messages are taken

    def get(self, jobid: int) -> GuestNamespace | None:
        return self._by_id.get(jobid)

    # A namespace is made

    def open(self, start: Start, *, wake: bool = False) -> None:
        """Make the namespace of a job that is to start, unless it is there."""
        guest = self._by_id.get(start.id)
        if guest is not None:
            guest.last.clear()  # the job manager asks again, and gets all answers again
            return
        service = f"{start.userid}-shell-{format_fluid(start.id, 'f58plain')}"
        nodes, limit = _laid_out(start)
        size = 0 if start.R is None else start.R.nnodes
        shell = Shell(service, self._rank, size, nodes)
        self._by_id[start.id] = guest = GuestNamespace(
            start.id, start.userid, shell, Contents(limit=limit), wake
        )
        self._ask(guest, Step.FIND, kvs.look_up_tree(_place(guest)))

    def holds(self, request: Request, jobid: int) -> bool:
        """Return whether a lookup of the core waits for the job's namespace, or is refused."""
        guest = self._by_id.get(jobid)
        if guest is None:
            return False
        match self._states.of(jobid):
            case state if state in _OPENING:
                guest.held.append(request)
                return True
            case _S.BROKEN:
                errnum, text = guest.refusal
                self._mail.answer_core(request, text, errnum)
                return True
            case _:
                return False

    def answered(self, call: NamespaceCall, response: Response) -> list[Request]:
        """Take an answer of the kvs; return the held lookups that can be asked now."""
        guest = self._by_id.get(call.id)
        if guest is None:
            return []
        try:
            self._handle(guest, call, response)
        except (FluxError, FormatError, msgspec.MsgspecError) as error:
            self._failed(guest, call, error)
        self._changed[guest.id] = None
        if self._states.of(guest.id) in (_S.OPEN, _S.CLOSED, _S.BROKEN):
            held, guest.held = guest.held, []
            return held
        return []

    def _handle(self, guest: GuestNamespace, call: NamespaceCall, response: Response) -> None:
        match call.step:
            case Step.FIND:
                self._found(guest, kvs.tree_in(response, _place(guest)))
            case Step.MAKE:
                self._made(guest, response)
            case Step.READ_LOG:
                guest.contents.read_log(kvs.text_in(response, EXEC_LOG) or "")
                self._step(guest, _E.LOG_READ)
                self._ask(guest, Step.READ_PLACES, kvs.look_up(PLACES, guest.namespace))
            case Step.READ_PLACES:
                guest.contents.read_places(kvs.text_in(response, PLACES) or "")
                self._furnish(guest, _E.PLACES_READ)
            case Step.LINK:
                kvs.check(response, guest.namespace)
                self._step(guest, _E.LINKED)
            case Step.WRITE:
                self._written(guest, call, response)
            case Step.ROOT:
                self._move(guest, kvs.tree_in(response, "."))
            case Step.MOVE:
                kvs.check(response, _place(guest))
                self._step(guest, _E.MOVED)
                self._tell(guest)
                self._ask(guest, Step.REMOVE, kvs.remove(guest.namespace))
            case Step.REMOVE:
                self._step(guest, _E.REMOVED)
                if response.errnum != ENOTSUP:  # an earlier program has removed it
                    kvs.check(response, guest.namespace)

    def _found(self, guest: GuestNamespace, tree: kvs.Tree | None) -> None:
        if tree is not None and tree.type != "symlink":
            self._step(guest, _E.MOVED)
            self._ask(guest, Step.REMOVE, kvs.remove(guest.namespace))
        else:
            self._step(guest, _E.NOTHING)
            made = kvs.create(guest.namespace, guest.userid, self._empty_root)
            self._ask(guest, Step.MAKE, made)

    def _made(self, guest: GuestNamespace, response: Response) -> None:
        if response.errnum == Errno.EEXIST:  # an earlier program has made it
            self._step(guest, _E.EXISTS)
            self._ask(guest, Step.READ_LOG, kvs.look_up(EXEC_LOG, guest.namespace))
        else:
            kvs.check(response, guest.namespace)
            self._furnish(guest, _E.MADE)

    def _furnish(self, guest: GuestNamespace, event: NamespaceEvent) -> None:
        self._step(guest, event)
        guest.contents.begin(self._mail.now, guest.ntasks)

    def _failed(self, guest: GuestNamespace, call: NamespaceCall, error: Exception) -> None:
        """Let the core fail the job, or go on with its end: its resources must not wait for it."""
        name = format_fluid(guest.id, "f58")
        self._mail.log(Level.ERR, f"job {name}: {call.step.value}: {error}")
        state = self._states.of(guest.id)
        if state in _OPENING:
            errnum = error.errnum if isinstance(error, FluxError) else int(Errno.EPROTO)
            guest.refusal = errnum, f"no guest namespace: {error}"
        if NamespaceStates.table.allows(state, _E.FAILED):
            self._step(guest, _E.FAILED)

    # Events and output

    def began(self, guest: GuestNamespace) -> None:
        """Tell those who follow the job that it runs, and follow its output; once."""
        if guest.has_begun or self._states.of(guest.id) is not _S.OPEN:
            return
        guest.has_begun = True
        guest.contents.started(self._mail.now, guest.shell)
        self._mail.ask(
            "service.add", {"service": guest.shell.service}, Acknowledged(guest.shell.service)
        )
        if "complete" not in guest.contents.names:
            self._waiting[guest.id] = None
        self._changed[guest.id] = None

    def piece_came(self, jobid: int, response: Response) -> None:
        """Take a piece of a job's output, or the end of its output."""
        guest = self._by_id.get(jobid)
        if response.errnum:
            self._streams.discard(jobid)
        if guest is None or guest.stream != response.matchtag:
            return
        self._changed[jobid] = None
        if response.errnum:
            guest.stream = 0
            if response.errnum != Errno.ENODATA:
                self._mail.log(Level.ERR, f"output of job {jobid}: {response.error_text}")
        elif isinstance(response.payload, dict):
            guest.contents.add_piece(self._mail.now, response.payload)
            guest.npieces += 1

    def end(self, guest: GuestNamespace, request: Request, exec_log: str) -> None:
        """Answer the core's commit of the job's end when its output is in the namespace."""
        guest.end, guest.status = request, completed_status(exec_log) or 0
        self._changed[guest.id] = None

    def release(self, guest: GuestNamespace) -> None:
        """Move the namespace of a job that the core has released; `last` waits for it."""
        if self._states.of(guest.id) is _S.OPEN:
            self._step(guest, _E.RELEASED)
            self._leave_stream(guest)
            guest.contents.done(self._mail.now)
            self._mail.ask("service.remove", {"service": guest.shell.service}, Acknowledged(""))
        self._changed[guest.id] = None

    def _leave_stream(self, guest: GuestNamespace) -> None:
        """End a stream that is not whole: the job has ended in another way than by its tasks."""
        self._waiting.pop(guest.id, None)
        if guest.stream:
            self._mail.tell_core(f"{self._service}.attach-cancel", {"matchtag": guest.stream})
            guest.stream = 0

    # When all messages of a turn are taken

    def settle(self) -> None:
        """Write what waits, and go on with the namespaces that have changed."""
        while self._waiting and len(self._streams) < STREAMS_MAX:
            self._follow_output(self._by_id[next(iter(self._waiting))])
        changed, self._changed = self._changed, {}
        for jobid in changed:
            if (guest := self._by_id.get(jobid)) is not None:
                self._go_on(guest)

    def _follow_output(self, guest: GuestNamespace) -> None:
        del self._waiting[guest.id]
        self._streams.add(guest.id)
        wanted: Object = {"id": guest.id, "credit": CREDIT}
        topic = f"{self._service}.attach"
        guest.stream = self._mail.ask_core(topic, wanted, OutputOf(guest.id), STREAMING)

    def _go_on(self, guest: GuestNamespace) -> None:
        state = self._states.of(guest.id)
        if state in (_S.CLOSED, _S.BROKEN):
            self._close(guest)
        elif guest.writing or self._write(guest):
            pass
        elif state is _S.FURNISHING:
            self._step(guest, _E.WRITTEN)
            link = kvs.link(_place(guest), guest.namespace)
            self._ask(guest, Step.LINK, kvs.commit([link]))
        elif state is _S.ENDING:
            self._step(guest, _E.WRITTEN)
            self._ask(guest, Step.ROOT, kvs.look_up_tree(".", guest.namespace))
        elif state is _S.OPEN and guest.end is not None:
            self._complete(guest, guest.end)

    def _complete(self, guest: GuestNamespace, end: Request) -> None:
        """Write the end of the job once its output is whole; then the core may tell it."""
        if guest.stream or guest.id in self._waiting:
            return
        guest.contents.completed(self._mail.now, guest.status, guest.ntasks, self._rank)
        if not self._write(guest):
            guest.end = None
            self._mail.answer_core(end)

    def _write(self, guest: GuestNamespace) -> bool:
        """Write what waits; return whether there was anything."""
        ops = guest.contents.pop_ops()
        npieces, guest.npieces = guest.npieces, 0
        if not ops:  # the pieces are in the namespace already, or beyond the limit
            self._grant(guest, npieces)
            return False
        guest.writing = True
        call = NamespaceCall(guest.id, Step.WRITE, npieces)
        self._mail.ask(*kvs.commit(ops, guest.namespace), call)
        return True

    def _grant(self, guest: GuestNamespace, npieces: int) -> None:
        """Give the core credit for pieces that are done with."""
        if npieces and guest.stream:
            grant: Object = {"matchtag": guest.stream, "credit": npieces}
            self._mail.tell_core(f"{self._service}.attach-credit", grant)

    def _written(self, guest: GuestNamespace, call: NamespaceCall, response: Response) -> None:
        guest.writing = False
        self._grant(guest, call.npieces)
        kvs.check(response, guest.namespace)

    def _move(self, guest: GuestNamespace, root: kvs.Tree | None) -> None:
        if root is None:
            raise FluxError(Errno.ENOENT, f"{guest.namespace}: it has no root")
        self._step(guest, _E.ROOT)
        graft = kvs.graft(_place(guest), root)
        self._ask(guest, Step.MOVE, kvs.commit([graft]))

    def _close(self, guest: GuestNamespace) -> None:
        """Answer what waits; forget the namespace when the end of the job is told."""
        if guest.end is not None:
            self._mail.answer_core(guest.end)
            guest.end = None
        if guest.last:
            self._tell(guest)
        if guest.is_told:
            del self._by_id[guest.id]
            self._states.forget(guest.id)

    def _tell(self, guest: GuestNamespace) -> None:
        """Send the last answers of a job; a successor is not asked any more for it.

        What the core was asked for a leftover goes nowhere.
        """
        self._mail.to_broker += [each for each in guest.last if each.routes != (GUEST,)]
        guest.last, guest.is_told = [], True
        if guest.wake:
            self.wake(guest.id)

    def wake(self, jobid: int) -> None:
        """Raise an exception that changes nothing, so that flux-core looks at a job again."""
        raised: Object = {"severity": SEVERITY_DEBUG, "type": "exec", "note": WOKEN}
        self._mail.ask(topics.JOB_RAISE, {"id": jobid, **raised}, Acknowledged(""))

    def _ask(self, guest: GuestNamespace, step: Step, ask: Ask) -> None:
        topic, payload = ask
        self._mail.ask(topic, payload, NamespaceCall(guest.id, step))

    def _step(self, guest: GuestNamespace, event: NamespaceEvent) -> None:
        self._states.step(guest.id, event)


def _place(guest: GuestNamespace) -> str:
    """Return the key at which others find the content of the namespace."""
    return job_key(guest.id, "guest")


def _laid_out(start: Start) -> tuple[list[int], int]:
    """Return the node of each task, and how many bytes of output the job may have.

    A jobspec that cannot be laid out is the core's to refuse.
    """
    try:
        jobspec = parse_jobspec(msgspec.json.encode(start.jobspec))
        limit = limit_of(jobspec, OUTPUT_BYTES)
        assert isinstance(start.R, ResourceSet)
        node_of = {rank: node for node, rank in enumerate(start.R.ranks)}
        return [node_of[place.rank] for place in place_tasks(jobspec, start.R)], limit
    except (FormatError, LayoutError):
        return [], OUTPUT_BYTES
