"""The guest rooms of all jobs: what each asks of the kvs, and what follows from the answers."""

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
        self._changed: dict[int, None] = {}  # rooms to look at when all messages are taken

    def get(self, jobid: int) -> GuestNamespace | None:
        return self._by_id.get(jobid)

    # A room is made

    def open(self, start: Start, *, wake: bool = False) -> None:
        """Make the room of a job that is to start, unless it is there; see `Room.wake`."""
        room = self._by_id.get(start.id)
        if room is not None:
            room.last.clear()  # the job manager asks again, and gets all answers again
            return
        service = f"{start.userid}-shell-{format_fluid(start.id, 'f58plain')}"
        nodes, limit = _laid_out(start)
        size = 0 if start.R is None else start.R.nnodes
        shell = Shell(service, self._rank, size, nodes)
        self._by_id[start.id] = room = GuestNamespace(
            start.id, start.userid, shell, Contents(limit=limit), wake
        )
        self._ask(room, Step.FIND, kvs.look_up_tree(_place(room)))

    def holds(self, request: Request, jobid: int) -> bool:
        """Return whether a lookup of the core waits for the job's room, or is refused with it."""
        room = self._by_id.get(jobid)
        if room is None:
            return False
        match self._states.of(jobid):
            case state if state in _OPENING:
                room.held.append(request)
                return True
            case _S.BROKEN:
                errnum, text = room.refusal
                self._mail.answer_core(request, text, errnum)
                return True
            case _:
                return False

    def answered(self, call: NamespaceCall, response: Response) -> list[Request]:
        """Take an answer of the kvs; return the held lookups that can be asked now."""
        room = self._by_id.get(call.id)
        if room is None:
            return []
        try:
            self._handle(room, call, response)
        except (FluxError, FormatError, msgspec.MsgspecError) as error:
            self._failed(room, call, error)
        self._changed[room.id] = None
        if self._states.of(room.id) in (_S.OPEN, _S.CLOSED, _S.BROKEN):
            held, room.held = room.held, []
            return held
        return []

    def _handle(self, room: GuestNamespace, call: NamespaceCall, response: Response) -> None:
        match call.step:
            case Step.FIND:
                self._found(room, kvs.tree_in(response, _place(room)))
            case Step.MAKE:
                self._made(room, response)
            case Step.READ_LOG:
                room.contents.read_log(kvs.text_in(response, EXEC_LOG) or "")
                self._step(room, _E.LOG_READ)
                self._ask(room, Step.READ_PLACES, kvs.look_up(PLACES, room.namespace))
            case Step.READ_PLACES:
                room.contents.read_places(kvs.text_in(response, PLACES) or "")
                self._furnish(room, _E.PLACES_READ)
            case Step.LINK:
                kvs.check(response, room.namespace)
                self._step(room, _E.LINKED)
            case Step.WRITE:
                self._written(room, call, response)
            case Step.ROOT:
                self._move(room, kvs.tree_in(response, "."))
            case Step.MOVE:
                kvs.check(response, _place(room))
                self._step(room, _E.MOVED)
                self._tell(room)
                self._ask(room, Step.REMOVE, kvs.remove(room.namespace))
            case Step.REMOVE:
                self._step(room, _E.REMOVED)
                if response.errnum != ENOTSUP:  # an earlier program has removed it
                    kvs.check(response, room.namespace)

    def _found(self, room: GuestNamespace, tree: kvs.Tree | None) -> None:
        if tree is not None and tree.type != "symlink":
            self._step(room, _E.MOVED)
            self._ask(room, Step.REMOVE, kvs.remove(room.namespace))
        else:
            self._step(room, _E.NOTHING)
            made = kvs.create(room.namespace, room.userid, self._empty_root)
            self._ask(room, Step.MAKE, made)

    def _made(self, room: GuestNamespace, response: Response) -> None:
        if response.errnum == Errno.EEXIST:  # an earlier program has made it
            self._step(room, _E.EXISTS)
            self._ask(room, Step.READ_LOG, kvs.look_up(EXEC_LOG, room.namespace))
        else:
            kvs.check(response, room.namespace)
            self._furnish(room, _E.MADE)

    def _furnish(self, room: GuestNamespace, event: NamespaceEvent) -> None:
        self._step(room, event)
        room.contents.begin(self._mail.now, room.ntasks)

    def _failed(self, room: GuestNamespace, call: NamespaceCall, error: Exception) -> None:
        """Let the core fail the job, or go on with its end: its resources must not wait for it."""
        name = format_fluid(room.id, "f58")
        self._mail.log(Level.ERR, f"job {name}: {call.step.value}: {error}")
        state = self._states.of(room.id)
        if state in _OPENING:
            errnum = error.errnum if isinstance(error, FluxError) else int(Errno.EPROTO)
            room.refusal = errnum, f"no guest namespace: {error}"
        if NamespaceStates.table.allows(state, _E.FAILED):
            self._step(room, _E.FAILED)

    # Events and output

    def began(self, room: GuestNamespace) -> None:
        """Tell those who follow the job that it runs, and follow its output; once."""
        if room.has_begun or self._states.of(room.id) is not _S.OPEN:
            return
        room.has_begun = True
        room.contents.started(self._mail.now, room.shell)
        self._mail.ask(
            "service.add", {"service": room.shell.service}, Acknowledged(room.shell.service)
        )
        if "complete" not in room.contents.names:
            self._waiting[room.id] = None
        self._changed[room.id] = None

    def piece_came(self, jobid: int, response: Response) -> None:
        """Take a piece of a job's output, or the end of its output."""
        room = self._by_id.get(jobid)
        if response.errnum:
            self._streams.discard(jobid)
        if room is None or room.stream != response.matchtag:
            return
        self._changed[jobid] = None
        if response.errnum:
            room.stream = 0
            if response.errnum != Errno.ENODATA:
                self._mail.log(Level.ERR, f"output of job {jobid}: {response.error_text}")
        elif isinstance(response.payload, dict):
            room.contents.add_piece(self._mail.now, response.payload)
            room.npieces += 1

    def end(self, room: GuestNamespace, request: Request, exec_log: str) -> None:
        """Answer the core's commit of the job's end when its output is in the room."""
        room.end, room.status = request, completed_status(exec_log) or 0
        self._changed[room.id] = None

    def release(self, room: GuestNamespace) -> None:
        """Move the room of a job that the core has released; `room.last` waits for it."""
        if self._states.of(room.id) is _S.OPEN:
            self._step(room, _E.RELEASED)
            self._leave_stream(room)
            room.contents.done(self._mail.now)
            self._mail.ask("service.remove", {"service": room.shell.service}, Acknowledged(""))
        self._changed[room.id] = None

    def _leave_stream(self, room: GuestNamespace) -> None:
        """End a stream that is not whole: the job has ended in another way than by its tasks."""
        self._waiting.pop(room.id, None)
        if room.stream:
            self._mail.tell_core(f"{self._service}.attach-cancel", {"matchtag": room.stream})
            room.stream = 0

    # When all messages of a turn are taken

    def settle(self) -> None:
        """Write what waits, and go on with the rooms that have changed."""
        while self._waiting and len(self._streams) < STREAMS_MAX:
            self._follow_output(self._by_id[next(iter(self._waiting))])
        changed, self._changed = self._changed, {}
        for jobid in changed:
            if (room := self._by_id.get(jobid)) is not None:
                self._go_on(room)

    def _follow_output(self, room: GuestNamespace) -> None:
        del self._waiting[room.id]
        self._streams.add(room.id)
        wanted: Object = {"id": room.id, "credit": CREDIT}
        topic = f"{self._service}.attach"
        room.stream = self._mail.ask_core(topic, wanted, OutputOf(room.id), STREAMING)

    def _go_on(self, room: GuestNamespace) -> None:
        state = self._states.of(room.id)
        if state in (_S.CLOSED, _S.BROKEN):
            self._close(room)
        elif room.writing or self._write(room):
            pass
        elif state is _S.FURNISHING:
            self._step(room, _E.WRITTEN)
            link = kvs.link(_place(room), room.namespace)
            self._ask(room, Step.LINK, kvs.commit([link]))
        elif state is _S.ENDING:
            self._step(room, _E.WRITTEN)
            self._ask(room, Step.ROOT, kvs.look_up_tree(".", room.namespace))
        elif state is _S.OPEN and room.end is not None:
            self._complete(room, room.end)

    def _complete(self, room: GuestNamespace, end: Request) -> None:
        """Write the end of the job once its output is whole; then the core may tell it."""
        if room.stream or room.id in self._waiting:
            return
        room.contents.completed(self._mail.now, room.status, room.ntasks, self._rank)
        if not self._write(room):
            room.end = None
            self._mail.answer_core(end)

    def _write(self, room: GuestNamespace) -> bool:
        """Write what waits; return whether there was anything."""
        ops = room.contents.pop_ops()
        npieces, room.npieces = room.npieces, 0
        if not ops:  # the pieces are in the room already, or beyond the limit
            self._grant(room, npieces)
            return False
        room.writing = True
        call = NamespaceCall(room.id, Step.WRITE, npieces)
        self._mail.ask(*kvs.commit(ops, room.namespace), call)
        return True

    def _grant(self, room: GuestNamespace, npieces: int) -> None:
        """Give the core credit for pieces that are done with."""
        if npieces and room.stream:
            grant: Object = {"matchtag": room.stream, "credit": npieces}
            self._mail.tell_core(f"{self._service}.attach-credit", grant)

    def _written(self, room: GuestNamespace, call: NamespaceCall, response: Response) -> None:
        room.writing = False
        self._grant(room, call.npieces)
        kvs.check(response, room.namespace)

    def _move(self, room: GuestNamespace, root: kvs.Tree | None) -> None:
        if root is None:
            raise FluxError(Errno.ENOENT, f"{room.namespace}: it has no root")
        self._step(room, _E.ROOT)
        graft = kvs.graft(_place(room), root)
        self._ask(room, Step.MOVE, kvs.commit([graft]))

    def _close(self, room: GuestNamespace) -> None:
        """Answer what waits; forget the room when the end of the job is told."""
        if room.end is not None:
            self._mail.answer_core(room.end)
            room.end = None
        if room.last:
            self._tell(room)
        if room.is_told:
            del self._by_id[room.id]
            self._states.forget(room.id)

    def _tell(self, room: GuestNamespace) -> None:
        """Send the last answers of a job; a successor is not asked any more for it.

        What the core was asked for a leftover goes nowhere.
        """
        self._mail.to_broker += [each for each in room.last if each.routes != (GUEST,)]
        room.last, room.is_told = [], True
        if room.wake:
            self.wake(room.id)

    def wake(self, jobid: int) -> None:
        """Raise an exception that changes nothing, so that flux-core looks at a job again."""
        raised: Object = {"severity": SEVERITY_DEBUG, "type": "exec", "note": WOKEN}
        self._mail.ask(topics.JOB_RAISE, {"id": jobid, **raised}, Acknowledged(""))

    def _ask(self, room: GuestNamespace, step: Step, ask: Ask) -> None:
        topic, payload = ask
        self._mail.ask(topic, payload, NamespaceCall(room.id, step))

    def _step(self, room: GuestNamespace, event: NamespaceEvent) -> None:
        self._states.step(room.id, event)


def _place(room: GuestNamespace) -> str:
    """Return the key at which others find the content of the room."""
    return job_key(room.id, "guest")


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
