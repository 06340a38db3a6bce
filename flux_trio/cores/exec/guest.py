"""The guest namespaces of all jobs (RFC 16): what each asks of the kvs, and what answers change.

Flux's own programs find in it what they follow of a job that runs. `flux run` and `flux job attach`
follow its exec eventlog and begin with the job's output when `shell.init` is there, as flux-core's
shell writes it. The event names the service by which they send standard input:
`<userid>-shell-<job id>`, which this service holds while the job runs.

For each job the kvs is asked in the order of the table GUEST_NAMESPACE:

    what is at job.<id>.guest             → nothing, a link, or the content of a namespace
    namespace-create job-<id>             → or it is there: read what an earlier service has left
    commit init, starting                 → and the link
    commit shell.init, shell.start        → when the tasks run; then the start is told
    commit output and input, piece by piece, with how much is there
    commit shell-exit, complete, done     → when the processes have ended and all output is there
    the root of the namespace             → put at job.<id>.guest; then the end is told
    namespace-remove job-<id>

In the kvs of this project `job-<id>` is a view of job.<dothex>.guest: the content is written at its
place. A commit says whose namespaces it writes in; by that they are made with their first events
and removed with their last. The events of several jobs in a turn are one commit. The output is
copied when somebody reads it, or at the end, and the job is launched meanwhile. flux-core's job
manager does not ask again for a job that is canceled while no service is there. So with flux-core
a job is launched when its namespace is linked, by which the next service finds it; see
`GuestSettings`.

Where Flux's own programs do not come in, a job has no namespace, and the content is written in one
commit at the end, or earlier if somebody reads the output.
"""

from __future__ import annotations

import msgspec

from flux_trio.cores.exec.calls import ExecOutbox, GuestCall, GuestStep, GuestsWritten
from flux_trio.cores.exec.copying import Copies
from flux_trio.cores.exec.guest_contents import EXEC_LOG, PLACES, Contents
from flux_trio.cores.exec.input_log import InputLog
from flux_trio.cores.exec.input_options import with_input
from flux_trio.cores.exec.job import Copying, GuestNamespace, Job, Jobs, Phase
from flux_trio.cores.exec.output import log_begins
from flux_trio.cores.exec.starts import Starts
from flux_trio.cores.kvs_calls import check, commit_ops, commit_values, value_in
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import exec_requests, flux_kvs, rfc21
from flux_trio.editions.kvs import Guest
from flux_trio.formats import FormatError, format_fluid, job_key, treeobj
from flux_trio.formats.meanings import JobId, JsonObject, KvsOp
from flux_trio.messages import Errno, Flag, FluxError, Level, Payload, Request, Response, topics
from flux_trio.protocols.guest_namespace import (
    OPENING,
    NamespaceEvent,
    NamespaceState,
    NamespaceStates,
)


class GuestSettings(msgspec.Struct, frozen=True):
    """How guest namespaces are kept.

    Without `is_named` there are none, only their content. `root` is the blobref of an empty
    directory of the kvs. With `is_stored` the kvs is flux-core's: a namespace is there before the
    job is launched, and the output is in it while the job runs, whether it is read or not. Standard
    input is sent to the broker of rank `leader`; None is the rank of the job's first node.
    """

    is_named: bool = True
    root: str = treeobj.empty_root("sha1")
    is_stored: bool = False
    leader: int | None = None


class Batch(msgspec.Struct):
    """The events that the jobs of one turn write at their places, as one commit."""

    calls: list[GuestCall] = []
    ops: list[KvsOp] = []
    guests: list[Guest] = []

    def add(self, call: GuestCall, ops: list[KvsOp], guest: Guest) -> None:
        self.calls.append(call)
        self.ops += ops
        self.guests.append(guest)


_S, _E = NamespaceState, NamespaceEvent


class Guests(Part):
    """The namespaces of all jobs."""

    states: NamespaceStates
    _nopened: int
    _changed: dict[JobId, None]
    _batch: Batch

    def __init__(
        self,
        outbox: ExecOutbox,
        jobs: Jobs,
        starts: Starts,
        copies: Copies,
        inputs: InputLog,
        settings: GuestSettings,
    ) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self._starts = starts
        self._copies = copies
        self._inputs = inputs
        self._settings = settings
        self.states = NamespaceStates()
        self._nopened = 0  # namespaces so far
        self._changed = {}  # namespaces to look at when all inputs of the turn are taken
        self._batch = Batch()

    @property
    def is_named(self) -> bool:
        """Whether each job has a namespace, and not only its content."""
        return self._settings.is_named

    # A namespace is made

    def open(self, job: Job) -> bool:
        """Make a namespace of flux-core's kvs for a job, which waits for it.

        Returns False where the content is written at its place; then `begin` follows.
        """
        if not self._settings.is_stored:
            return False
        job.guest = self._new()
        asked = flux_kvs.LookupAt(_place(job), flux_kvs.TREEOBJ, flux_kvs.PRIMARY)
        self._ask(job, GuestStep.FIND, topics.KVS_LOOKUP, flux_kvs.LOOKUP.write(asked))
        return True

    def _new(self) -> GuestNamespace:
        self._nopened += 1
        return GuestNamespace(self._nopened, self.is_named)

    def begin(self, job: Job) -> None:
        """Write the content of a job that begins at its place; what was there has been read."""
        if job.guest is None:
            job.guest = self._new()
            self.states.step(job.id, _E.AT_PLACE)
            job.contents.begin(self._outbox.now)
            self._changed[job.id] = None

    def answered(self, call: GuestCall, response: Response) -> Job | None:
        """Take an answer of the kvs; return the job that need not wait for its namespace any more.

        If it could not be made, the job has a fatal exception.
        """
        job = self._jobs.get(call.id)
        guest = None if job is None else job.guest
        if job is None or guest is None or guest.number != call.number:
            if call.step is GuestStep.REMOVE:  # the job was told, or is asked for once more
                self._check_removed(call.id, response)
            return None
        before = self.states.of(job.id)
        try:
            self._handle(job, guest, call, response)
        except (FluxError, FormatError, msgspec.MsgspecError) as error:
            self._failed(job, call, error)
        self._changed[job.id] = None
        state = self.states.of(job.id)
        is_open = before in OPENING and state not in OPENING
        return job if is_open or (before is _S.OPEN and state is _S.BROKEN) else None

    def _handle(self, job: Job, guest: GuestNamespace, call: GuestCall, response: Response) -> None:
        match call.step:
            case GuestStep.WRITE:  # the most frequent one
                self._written(job, guest, call, response)
            case GuestStep.FIND:
                self._found(job, response)
            case GuestStep.MAKE:
                self._made(job, response)
            case GuestStep.READ_LOG:
                job.contents.read_log(value_in(response) or "")
                self._look_up(job, GuestStep.READ_PLACES, PLACES)
            case GuestStep.READ_PLACES:
                job.contents.read_places(value_in(response) or "")
                self._furnish(job, _E.READ)
            case GuestStep.LINK:
                check(response)
                self.states.step(job.id, _E.LINKED)
            case GuestStep.ROOT:
                check(response)
                self.states.step(job.id, _E.ROOT)
                root = flux_kvs.NAMESPACE_ROOT.read(response).rootref
                self._put(job, GuestStep.MOVE, treeobj.dirref(root))
            case GuestStep.MOVE:
                check(response)
                self._moved(job)
            case GuestStep.REMOVE:
                self.states.step(job.id, _E.REMOVED)
                self._check_removed(job.id, response)

    def _found(self, job: Job, response: Response) -> None:
        if response.errnum != Errno.ENOENT:
            check(response)
            if not treeobj.is_of_type(flux_kvs.FOUND.read(response).val, "symlink"):
                self._moved(job)
                return
        self.states.step(job.id, _E.NOTHING)
        root = self._settings.root
        asked = flux_kvs.NamespaceCreate(flux_kvs.namespace_of(job.id), root, job.userid, 0)
        payload = flux_kvs.NAMESPACE_CREATE.write(asked)
        self._ask(job, GuestStep.MAKE, topics.KVS_NAMESPACE_CREATE, payload)

    def _made(self, job: Job, response: Response) -> None:
        if response.errnum == Errno.EEXIST:  # an earlier service has made it
            self.states.step(job.id, _E.EXISTS)
            self._look_up(job, GuestStep.READ_LOG, EXEC_LOG)
        else:
            check(response)
            self._furnish(job, _E.MADE)

    def _furnish(self, job: Job, event: NamespaceEvent) -> None:
        self.states.step(job.id, event)
        job.contents.is_marked = True  # by which the next service finds it
        job.contents.begin(self._outbox.now)

    def _moved(self, job: Job) -> None:
        self.states.step(job.id, _E.MOVED)
        self._starts.let_go(job)
        gone = flux_kvs.NAMESPACE.write(flux_kvs.Namespace(flux_kvs.namespace_of(job.id)))
        self._ask(job, GuestStep.REMOVE, topics.KVS_NAMESPACE_REMOVE, gone)

    def _check_removed(self, jobid: JobId, response: Response) -> None:
        """Log an error; that there is no such namespace is none: an earlier service removed it."""
        if response.errnum and response.errnum != Errno.ENOTSUP:
            self._log(jobid, GuestStep.REMOVE, FluxError(response.errnum, response.error_text))

    def _failed(self, job: Job, call: GuestCall, error: Exception) -> None:
        """Fail the job, or go on with its end: its resources must not wait for the kvs."""
        self._log(job.id, call.step, error)
        state = self.states.of(job.id)
        if NamespaceStates.table.allows(state, _E.FAILED):
            self.states.step(job.id, _E.FAILED)
        if state in OPENING or call.step is GuestStep.WRITE:
            job.is_stored = False
            self._starts.exception(job, f"no guest namespace: {error}")

    def _log(self, jobid: JobId, step: GuestStep, error: Exception) -> None:
        name = format_fluid(jobid, "f58")
        self._outbox.send(Log(Level.ERR, f"job {name}: {step.value}: {error}"))

    # Events, output, input

    def prepare(self, job: Job) -> None:
        """Let the tasks of `job` read what commands send, as in flux-core."""
        if job.guest is not None:
            job.jobspec = with_input(job.jobspec)

    def started(self, job: Job) -> None:
        """Note that the tasks of `job` run; its start is told when that is written."""
        assert job.guest is not None
        if self._settings.is_named:
            job.guest.is_starting = True
        else:
            self._begin_log(job, job.guest)

    def _started(self, job: Job, guest: GuestNamespace) -> None:
        """Write that the tasks run, in a namespace that is OPEN."""
        guest.is_starting = False
        assert job.resources is not None
        shell = exec_requests.ShellInit(
            exec_requests.shell_service(job.userid, job.id),
            self._leader(job),
            len(job.resources.ranks),
        )
        job.contents.add(self._outbox.now, "shell.init", msgspec.to_builtins(shell))
        self._outbox.send(
            _named(topics.BROKER_REGISTER, exec_requests.shell_service(job.userid, job.id))
        )
        self._begin_log(job, guest)

    def _begin_log(self, job: Job, guest: GuestNamespace) -> None:
        """Write the beginning of the output, once, and copy the output if somebody reads it."""
        now, contents = self._outbox.now, job.contents
        contents.limit = job.output_limit
        if "shell.start" not in contents.names:
            contents.output += log_begins(
                now, job.ntasks, job.output_paths, job.remarks, is_unbuffered=job.is_unbuffered
            )
            taskmap = None
            if self._settings.is_named:
                contents.more += self._inputs.begins(job)
                taskmap = exec_requests.taskmap(job.nodes)
            contents.add(now, "shell.start", taskmap)
        guest.has_started = True
        settings, is_over = self._settings, job.phase is Phase.STORING
        was_read = job.reattach and (settings.is_named or contents.is_placed)
        if settings.is_stored or guest.is_read or was_read or is_over:
            self._copies.begin(job)

    def copy(self, request: Request) -> None:
        """<service>.copy: store the output of a job that runs, since somebody reads it."""
        if (job := self._copies.ask(request)) is not None:
            self._changed[job.id] = None

    def _refused(self, job: Job, response: Response) -> None:
        """Let the shell host keep its copy of the output, which is the only whole one."""
        if job.is_stored:
            name = format_fluid(job.id, "f58")
            text = f"job {name}: its output is not stored, the shell host keeps it: "
            self._outbox.send(Log(Level.ERR, f"{text}{response.error_text}"))
        job.is_stored = False
        job.contents.refuse(response.error_text)

    # The job ends

    def ended(self, job: Job) -> None:
        """Go on with the end of a job, whose processes have ended."""
        if job.guest is not None and job.guest.has_started:
            self._copies.ended(job)
        self._changed[job.id] = None

    def _write_end(self, job: Job) -> None:
        """Write how the job has ended, all its output being there; once."""
        now, contents = self._outbox.now, job.contents
        if job.status is not None:
            if job.ntasks:  # it was no simulated job
                self._inputs.flush(job)
                contents.end_output(now, job.ntasks, job.sizes or {})
            if job.ntasks and self._settings.is_named:
                shell = exec_requests.ShellExit(self._leader(job), job.status)
                contents.add(now, "shell-exit", msgspec.to_builtins(shell))
            contents.add(now, "complete", rfc21.write(rfc21.Finish(job.status)))
        contents.end(now)

    def _release(self, job: Job, guest: GuestNamespace) -> None:
        """Move the namespace of a job that has ended: its last answers wait for it."""
        self.states.step(job.id, _E.RELEASED)
        self._copies.end(job)  # the job may have ended without its tasks
        if job.status is None and not self._settings.is_named:
            job.contents = Contents()  # it has not run
        else:
            self._write_end(job)
        if guest.has_started and self._settings.is_named:
            self._outbox.send(
                _named(topics.BROKER_UNREGISTER, exec_requests.shell_service(job.userid, job.id))
            )
        self._go_on(job, guest)

    def forget(self, job: Job) -> None:
        """Forget the namespace of a job whose end was told, or that is not launched after all."""
        self.states.forget(job.id)

    # When all inputs of a turn are taken

    def settle(self) -> None:
        """Write what waits, and go on with the namespaces that have changed."""
        self._changed |= dict.fromkeys(self._starts.pop_held())
        self._copies.begin_waiting()
        while changed := self._changed | self._copies.pop_changed():
            self._changed = {}
            for jobid in changed:
                job = self._jobs.get(jobid)
                if job is not None and job.guest is not None:
                    self._go_on(job, job.guest)
            self._copies.begin_waiting()
        self._send_batch()

    def _go_on(self, job: Job, guest: GuestNamespace) -> None:
        state = self.states.of(job.id)
        if state is _S.OPEN and guest.is_starting:
            self._started(job, guest)
        is_whole = job.phase is Phase.STORING and guest.copying is Copying.DONE
        if state is _S.OPEN and is_whole and not guest.is_writing:
            self._write_end(job)
        if state in (_S.CLOSED, _S.BROKEN):
            if job.status is not None and job.phase is Phase.STORING:
                self._starts.finish(job, job.status)
            self._starts.let_go(job)
        elif state is _S.OPEN and job.phase is Phase.OVER and not guest.is_writing:
            self._release(job, guest)
            return
        elif guest.is_writing or self._write(job, guest):
            return
        elif state is _S.FURNISHING:
            self.states.step(job.id, _E.WRITTEN)
            self._put(job, GuestStep.LINK, treeobj.link(flux_kvs.namespace_of(job.id)))
        elif state is _S.ENDING:
            self._end(job)
        elif state is _S.OPEN and is_whole:
            assert job.status is not None
            self._starts.finish(job, job.status)
            self._release(job, guest)
        elif state is _S.OPEN:
            self._starts.let_go(job)
        if guest.is_current:
            guest.is_current = False
            self._copies.answer_readers(job)

    def _end(self, job: Job) -> None:
        """Move the content, all of which is written, to its place; it may be there already."""
        if self._settings.is_stored:
            self.states.step(job.id, _E.WRITTEN)
            asked = flux_kvs.GET_ROOT.write(flux_kvs.GetRoot(flux_kvs.namespace_of(job.id)))
            self._ask(job, GuestStep.ROOT, topics.KVS_GETROOT, asked)
        else:
            self.states.step(job.id, _E.IN_PLACE)
            self._starts.let_go(job)

    def _write(self, job: Job, guest: GuestNamespace) -> bool:
        """Write what waits; return whether there was anything.

        Without a namespace all waits until somebody reads it, or to the end.
        """
        is_named = self.is_named
        if not is_named and guest.copying is Copying.NOT_YET:
            return False
        is_over = job.contents.is_over
        ops = job.contents.pop_ops(in_pieces=not is_named)
        nbytes = job.contents.pop_taken()
        if not ops:  # the output is stored already, or beyond the limit
            self._copies.stored(job, nbytes)
            return False
        guest.is_writing = True
        call = GuestCall(job.id, guest.number, GuestStep.WRITE, nbytes)
        if self._settings.is_stored:
            self._outbox.ask_kvs(commit_values(ops, flux_kvs.namespace_of(job.id)), call)
            return True
        place = _place(job)
        at_place = [[op, f"{place}.{key}", *text] for op, key, *text in ops]
        written = Guest(job.id, job.userid, is_over)
        if not is_named:
            self._outbox.ask_kvs(commit_ops(at_place), call)
        elif nbytes:  # the kvs may refuse output
            self._outbox.ask_kvs(commit_ops(at_place, guests=[written]), call)
        else:
            self._batch.add(call, at_place, written)
        return True

    def _send_batch(self) -> None:
        batch, self._batch = self._batch, Batch()
        if batch.calls:
            asked = commit_ops(batch.ops, guests=batch.guests)
            self._outbox.ask_kvs(asked, GuestsWritten(batch.calls))

    def _written(
        self, job: Job, guest: GuestNamespace, call: GuestCall, response: Response
    ) -> None:
        guest.is_writing = False
        state = self.states.of(job.id)
        if state in OPENING or (state is _S.OPEN and guest.is_named and not guest.is_made):
            check(response)
        guest.is_made = True
        if job.phase is not Phase.OVER and state is _S.OPEN and not job.contents.events:
            self._starts.let_go(job)
        self._copies.stored(job, call.nbytes)
        if response.errnum:
            self._refused(job, response)

    # Requests to the kvs

    def _look_up(self, job: Job, step: GuestStep, key: str) -> None:
        asked = flux_kvs.LOOKUP.write(flux_kvs.LookupAt(key, 0, flux_kvs.namespace_of(job.id)))
        self._ask(job, step, topics.KVS_LOOKUP, asked)

    def _put(self, job: Job, step: GuestStep, dirent: JsonObject) -> None:
        """Put a treeobj at the place of the namespace."""
        self._ask(job, step, topics.KVS_COMMIT, flux_kvs.put_tree(_place(job), dirent))

    def _ask(self, job: Job, step: GuestStep, topic: str, payload: Payload) -> None:
        assert job.guest is not None
        self._outbox.ask(topic, payload, GuestCall(job.id, job.guest.number, step))

    def _leader(self, job: Job) -> int:
        assert job.resources is not None
        leader = self._settings.leader
        return next(iter(job.resources.ranks)) if leader is None else leader


def _place(job: Job) -> str:
    """Return the key at which others find the content of the namespace."""
    return job_key(job.id, "guest")


def _named(topic: str, service: str) -> Request:
    payload = exec_requests.SERVICE.write(exec_requests.Service(service))
    return Request(topic, payload, flags=int(Flag.NORESPONSE))
