"""The resource service: RFC 28 from the resource side, and administration. Pure.

A scheduler acquires a group, and has it until it leaves:

    scheduler  resource.acquire      → grow at once, then shrink, online, offline, expiration
    scheduler  resource.release      → nothing (classic: a shrink is acknowledged)
    owner      resource.drain, undrain, targets-down, targets-up
                                     → nothing, when the event is durable; then holders hear of it
    all        resource.status       → R, and who is drained, down and excluded

`resource.acquire` and `resource.release` are RFC 28's; a stream tells its holder of every change.
The other requests are for the instance owner (`editions/flux.py` has their payloads). Targets are
text: an idset or a hostlist.

- `resource.drain` and `resource.undrain` are answered when the event is durable in the kvs, at
  `resource.eventlog`; a start replays that eventlog.
- `resource.targets-down` and `resource.targets-up` say that targets have failed, or are back. They
  are stored and answered as a drain is, and results of the check command (`[resource.check]`) are
  stored, too. Subscribers get the event `resource-offline` or `resource-online`.
- `resource.exclude` sets the members of the exclude group until the next start, which takes them
  from the configuration again; "" means no member.
- `resource.expiration-update` says when the whole instance ends, 0 for never. Holders of a group
  get R with the new time, subscribers the event `resource-expiration`.
- `resource.reload` takes R from a file, while nobody has acquired a group (`definition`).
- `resource.journal` and `resource.sched-status`, which Flux's own programs ask, are in `journal`.
- `resource.status` is for everybody. Its offline targets are those that are down; drained targets
  are offline to a scheduler, too (28.offline.6), but are listed apart.

Left out: which drained targets still have jobs, since only the job manager knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, TypeVar, assert_never

import msgspec

from flux_trio.cores.kvs_calls import cannot_read, commit_values, look_up, value_in
from flux_trio.cores.methods import Methods
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.resource.administration import Administration
from flux_trio.cores.resource.checks import Checked, Checks, NotChecked, RunCheck
from flux_trio.cores.resource.definition import RESOURCES_KEY, Definition, FileRead, Kept, ReadFile
from flux_trio.cores.resource.downs import OFFLINE, ONLINE
from flux_trio.cores.resource.groups import Groups
from flux_trio.cores.resource.journal import HeldRead, Journal, JournalRead, sched_status
from flux_trio.cores.resource.targets import parse_targets
from flux_trio.cores.state import CorePart
from flux_trio.cores.turns import (
    ClockStepped,
    CommonAction,
    CommonInput,
    Core,
    Exit,
    Log,
    Note,
    TimerFired,
)
from flux_trio.editions import CLASSIC, Codec, Edition, flux
from flux_trio.formats import Event, FormatError, Idset, ResourceSet, format_event
from flux_trio.formats.meanings import KvsOp
from flux_trio.messages import (
    Errno,
    FluxError,
    Level,
    Request,
    Response,
    respond,
    respond_error,
    topics,
    unanswered,
    unknown_method,
)
from flux_trio.messages import Event as EventMessage
from flux_trio.trace import Kind

T = TypeVar("T")

EVENTLOG_KEY: Final = "resource.eventlog"
UPDATE: Final = "resource-update"
CHECK_TIMER: Final = "check"


class EventlogRead(msgspec.Struct, frozen=True):
    """Answers the read of the eventlog that earlier runs have written."""


class Logged(msgspec.Struct, frozen=True):
    """Answers the commit of the events that `_committing` has."""


class DefinitionRead(msgspec.Struct, frozen=True):
    """Answers the read of R, which counts above the inventory that was given."""


class DefinitionWritten(msgspec.Struct, frozen=True):
    """Answers a commit of R; `request` is answered then."""

    request: Request | None = None


ResourceCall: TypeAlias = (
    EventlogRead | Logged | JournalRead | HeldRead | DefinitionRead | DefinitionWritten
)
ResourceTimer: TypeAlias = Literal["check"]
ResourceInput: TypeAlias = CommonInput[ResourceTimer] | Checked | NotChecked | FileRead
ResourceAction: TypeAlias = CommonAction[ResourceTimer] | RunCheck | ReadFile


class ResourceCore(
    CorePart, Core[ResourceTimer, Checked | NotChecked | FileRead, RunCheck | ReadFile]
):
    """The whole state of the resource service. `exclude` is among the targets of `inventory`.

    `missing` says by target what this machine lacks of it; these targets are down from the start.
    `check_interval_s` is the time between two sweeps of the check command, None without one.
    `kept` says what becomes of R in the kvs, None without Flux's own programs; `queues` has the
    hosts of each queue that has hosts.
    """

    _missing: dict[int, str]
    _replayed: bool
    _early: list[Request]
    _asking: list[Request]
    _waiting: deque[Request]
    _committing: tuple[Request | None, list[Event]] | None

    def __init__(
        self,
        inventory: ResourceSet,
        exclude: Idset | str,
        *,
        missing: Mapping[int, str] | None = None,
        check_interval_s: float | None = None,
        edition: Edition = CLASSIC,
        kept: Kept | None = None,
        queues: Mapping[str, str] | None = None,
    ) -> None:
        self._edition = edition
        self._definition = Definition(inventory, exclude, queues or {}, kept)
        self._groups = Groups(self._inventory, Idset(), edition)
        self._journal = Journal()
        self._administration = Administration(self._inventory)  # folded from durable events
        self._missing = dict(missing or {})
        self._checks: Checks | None = None
        if check_interval_s is not None:
            self._checks = Checks(self._administration.hosts, check_interval_s)
        self._outbox = Outbox[ResourceCall, ResourceAction, ResourceTimer](edition)
        self._replayed = False  # requests wait for it, since the first grow needs the state
        self._early = []
        self._asking = []  # requests that wait for what jobs hold
        self._waiting = deque()  # requests that become events, one at a time
        self._committing = None
        self._methods = Methods(
            for_owner={
                topics.RESOURCE_ACQUIRE: self._acquire,
                topics.RESOURCE_RELEASE: self._release,
                topics.RESOURCE_DRAIN: self._wait,
                topics.RESOURCE_UNDRAIN: self._wait,
                topics.RESOURCE_DOWN: self._wait,
                topics.RESOURCE_UP: self._wait,
                topics.RESOURCE_EXCLUDE: self._exclude,
                topics.RESOURCE_EXPIRATION: self._expire,
                topics.RESOURCE_RELOAD: self._reload,
                topics.RESOURCE_WAITUP: self._wait_up,
                topics.RESOURCE_JOURNAL: self._follow,
                topics.RESOURCE_JOURNAL_CANCEL: self._unfollow,
            },
            for_all={
                topics.RESOURCE_STATUS: self._status,
                topics.RESOURCE_SCHED_STATUS: self._ask_held,
            },
            stats=(topics.stats_of(topics.RESOURCE), self._stats),
            farewells={topics.RESOURCE: self._disconnect},
            forget=self._outbox.forget,
        )

    @property
    def has_read(self) -> bool:
        """Whether what earlier runs have written is read."""
        return self._replayed

    @property
    def down(self) -> Idset:
        """The targets that are down."""
        return self._administration.downs.targets

    @property
    def drained(self) -> Idset:
        """The targets that are drained."""
        return self._administration.drains.targets

    def start(self, now: float) -> list[ResourceAction]:
        """Ask for what earlier runs have written: the eventlog, and R if it is the stored one."""
        self._outbox.now = self._journal.began = now
        if self._definition.kept == "read":
            self._outbox.ask_kvs(look_up(RESOURCES_KEY), DefinitionRead())
        else:
            if self._definition.kept == "written":
                self._outbox.ask_kvs(self._definition.written(), DefinitionWritten())
            self._outbox.ask_kvs(look_up(EVENTLOG_KEY), EventlogRead())
        return self._outbox.pop_actions()

    @property
    def _inventory(self) -> ResourceSet:
        return self._definition.inventory

    def taken_up(self) -> None:
        """Compute again what follows from the inventory."""
        self._administration.take(self._inventory)

    def turn(self, now: float, inputs: Sequence[ResourceInput]) -> list[ResourceAction]:
        """Take requests, checks and the kvs's answers; tell the holders of groups what changed."""
        self._outbox.now = now
        for item in inputs:
            match item:
                case Request():
                    self._request(item)
                case Response():
                    self._response(now, item)
                case Checked() | NotChecked():
                    self._checked(item)
                case FileRead():
                    self._loaded(item)
                case TimerFired():
                    self._outbox.fired(CHECK_TIMER)
                    self._begin_checks(now)
                case ClockStepped(by):
                    self._outbox.clock_stepped(by)
                case EventMessage():
                    pass  # this service subscribes to no events
                case _:
                    assert_never(item)
        self._commit_next(now)
        self._notify()
        return self._outbox.pop_actions()

    def _notify(self) -> None:
        """Send the holders of groups the changes that they do not know yet."""
        up = self._inventory.ranks - self._administration.unavailable
        self._outbox.send_all(self._groups.update(up))

    def _stats(self) -> flux.ResourceStats:
        ranks = self._inventory.ranks
        down, drained = self._administration.downs.targets, self._administration.drains.targets
        return flux.ResourceStats(flux.ResourceNodes(len(ranks), len(down), len(drained)))

    def _request(self, request: Request) -> None:
        if self._replayed:
            self._outbox.send(self._methods.call(request))
        else:
            self._early.append(request)

    # RFC 28

    def _acquire(self, request: Request) -> None:
        if not request.is_streaming:
            raise FluxError(Errno.EPROTO, f"{request.topic}: expected the streaming flag")
        self._groups.acquire(self._edition.acquire.read(request).group, request)

    def _release(self, request: Request) -> None:
        codec = self._edition.release
        if codec is None:
            raise unknown_method(topics.RESOURCE, "release")
        release = codec.read(request)
        self._groups.release(release.group, request.sender, release.targets)
        self._outbox.send(respond(request))

    def _disconnect(self, request: Request) -> None:
        """Free the groups of a peer that is gone.

        Its requests are still carried out, but not answered (6.disconnect.2).
        """
        self._groups.disconnect(request.sender)
        self._journal.forget(request.sender)
        self._definition.unanswered(request.sender)
        self._asking = [unanswered(each, request.sender) for each in self._asking]
        self._waiting = deque(unanswered(each, request.sender) for each in self._waiting)
        if self._committing is not None:
            asked, events = self._committing
            self._committing = (asked and unanswered(asked, request.sender), events)

    # Administration

    def _wait(self, request: Request) -> None:
        self._waiting.append(request)

    def _exclude(self, request: Request) -> None:
        text = flux.TARGETS.read(request).targets
        targets = parse_targets(text, self._inventory) if text else Idset()
        self._notify()  # else a peer that acquires and loses all targets in this turn hears nothing
        self._groups.exclude = targets
        self._note("exclude", targets)
        self._outbox.send(respond(request))

    def _expire(self, request: Request) -> None:
        """Take the new end of the job that the instance runs in."""
        expiration = flux.INSTANCE_END.read(request).expiration
        starttime = self._inventory.starttime
        if 0 < expiration <= starttime:
            text = f"{request.topic}: expiration: {expiration} is not after {starttime}, the start"
            raise FluxError(Errno.EINVAL, text)
        self._definition.expire(expiration)
        self._outbox.send_all(self._groups.renew(self._inventory))
        self._publish(
            topics.RESOURCE_EXPIRATION_EVENT, flux.INSTANCE_END, flux.InstanceEnd(expiration)
        )
        if self._definition.kept is None:
            self._outbox.send(respond(request))
            return
        stamp = self._administration.stamp(self._outbox.now)
        event = Event(stamp, UPDATE, {"expiration": expiration})
        self._administration.apply(event)
        self._outbox.send_all(self._journal.told(event))
        logged: KvsOp = ["append", EVENTLOG_KEY, format_event(event)]
        self._outbox.ask_kvs(self._definition.written(logged), DefinitionWritten(request))

    def _status(self, request: Request) -> None:
        drained = self._administration.drains.for_status()
        status = flux.ResourceStatus(
            R=self._inventory.with_scheduling(None).to_json(),
            drained=drained,
            drain=drained,
            online=str(self._inventory.ranks - self._administration.downs.targets),
            offline=str(self._administration.downs.targets),
            down=self._administration.downs.for_status(),
            exclude=str(self._groups.exclude),
        )
        self._outbox.send(respond(request, flux.RESOURCE_STATUS.write(status)))

    # Other resources

    def _reload(self, request: Request) -> None:
        if self._definition.kept is None:
            raise unknown_method(topics.RESOURCE, "reload")
        asked = flux.RELOAD.read(request)  # first, so that a wrong key is told whoever has what
        self._check_free()
        self._outbox.send(self._definition.load(request, asked))

    def _check_free(self) -> None:
        if not self._groups.are_free:
            raise FluxError(Errno.EBUSY, "resources are busy (unload scheduler?)")

    def _loaded(self, file: FileRead) -> None:
        """Take R of a file, unless somebody has acquired resources meanwhile."""
        request, found = self._definition.loaded(file)
        try:
            if isinstance(found, FluxError):
                raise found
            self._check_free()
            self._take(found)
        except FormatError as error:
            self._outbox.send(respond_error(request, Errno.EINVAL, str(error)))
        except FluxError as error:
            self._outbox.send(respond_error(request, error.errnum, error.text))
        else:
            self._outbox.ask_kvs(self._definition.written(), DefinitionWritten(request))

    def _take(self, resources: ResourceSet) -> None:
        """Take another R; the eventlog says again which of its targets are drained or down."""
        self._definition.take(resources)
        self._administration.take(self._inventory)
        self._missing = {}
        self._replayed = False
        self._outbox.ask_kvs(look_up(EVENTLOG_KEY), EventlogRead())

    def _definition_read(self, response: Response) -> None:
        try:
            text = value_in(response)
            if text is None:
                self._definition.keep()
                self._outbox.ask_kvs(self._definition.written(), DefinitionWritten())
                self._outbox.ask_kvs(look_up(EVENTLOG_KEY), EventlogRead())
            else:
                self._take(ResourceSet.parse(text.encode(), RESOURCES_KEY, own_widths=True))
        except FluxError as error:
            self._outbox.send(cannot_read(RESOURCES_KEY, error))
        except FormatError as error:
            self._outbox.send(Exit(f"cannot read {RESOURCES_KEY}: {error}"))

    def _definition_written(self, call: DefinitionWritten, response: Response) -> None:
        """Answer who has changed R. If the kvs cannot write it, the change counts all the same."""
        if response.errnum:
            text = f"cannot write {RESOURCES_KEY}: {response.error_text}"
            self._outbox.send(Log(Level.ERR, text))
        if call.request is not None:
            self._outbox.send(respond(call.request))

    # What Flux's own programs read

    def _wait_up(self, request: Request) -> None:
        """resource.monitor-waitup: all ranks are online as long as the instance runs."""
        wanted = flux.WAIT_UP.read(request).up
        ranks = self._inventory.nnodes
        if wanted > ranks:
            text = f"{wanted} ranks are never online: this instance has {ranks}"
            raise FluxError(Errno.EINVAL, text)
        self._outbox.send(respond(request))

    def _follow(self, request: Request) -> None:
        key = self._journal.open(request)
        self._outbox.ask_kvs(look_up(EVENTLOG_KEY), JournalRead(key))

    def _unfollow(self, request: Request) -> None:
        self._outbox.send_all(filter(None, self._journal.cancel(request)))

    def _ask_held(self, request: Request) -> None:
        self._asking.append(request)
        if len(self._asking) == 1:
            self._outbox.ask(topics.JOB_RESOURCE_STATUS, None, HeldRead())

    def _tell_held(self, response: Response) -> None:
        """Answer resource.sched-status. Without a job manager, nothing is held."""
        asking, self._asking = self._asking, []
        if response.errnum not in (0, Errno.ENOSYS):
            text = f"{topics.JOB_RESOURCE_STATUS}: {response.error_text}"
            for request in asking:
                self._outbox.send(respond_error(request, response.errnum, text))
            return
        held = None
        if not response.errnum:
            held = flux.HELD_RESOURCES.read(response).allocated
        unavailable = self._administration.unavailable
        found = sched_status(self._inventory, self._groups.exclude, unavailable, held)
        for request in asking:
            self._outbox.send(respond(request, flux.SCHED_RESOURCES.write(found)))

    def _commit_next(self, now: float) -> None:
        """Make the next valid change durable; a change is checked when the last one is durable.

        An excluded target cannot be drained, too (flux-config-resource(5), `exclude`).
        """
        if self._committing or not self._replayed:
            return
        now = self._administration.stamp(now)
        if both := self._administration.drains.targets & self._groups.exclude:
            event = self._administration.drains.undrain(now, both)
            assert event is not None  # all of them are drained
            self._commit(None, [event])
        while self._waiting and self._committing is None:
            request = self._waiting.popleft()
            try:
                event = self._administration.event_for(now, request, self._groups.exclude)
            except FluxError as error:
                self._outbox.send(respond_error(request, error.errnum, error.text))
                continue
            if event is None:
                self._outbox.send(respond(request))
            else:
                self._commit(request, [event])
        if self._checks is not None and self._committing is None:
            self._commit(None, self._administration.events_for(now, self._checks))

    def _commit(self, request: Request | None, events: list[Event]) -> None:
        """Log `events`, if there are any; `request` is answered when they are durable."""
        if not events:
            return
        self._committing = (request, events)
        ops = [["append", EVENTLOG_KEY, format_event(event)] for event in events]
        self._outbox.ask_kvs(commit_values(ops), Logged())

    # Checks

    def _begin_checks(self, now: float) -> None:
        if self._checks is not None:
            self._outbox.send_all(self._checks.begin(now))

    def _checked(self, result: Checked | NotChecked) -> None:
        assert self._checks is not None  # only a service with checks gets results
        if isinstance(result, Checked):
            self._checks.checked(result)
        elif complaint := self._checks.not_checked(result):
            self._outbox.send(Log(Level.ERR, complaint))
        if (at := self._checks.next_at()) is not None:
            self._outbox.set_timer(CHECK_TIMER, at)

    # The kvs

    def _response(self, now: float, response: Response) -> None:
        match self._outbox.calls.match(response):
            case EventlogRead():
                self._replay(now, response)
            case Logged():
                self._committed(response)
            case JournalRead(stream):
                self._outbox.send_all(self._journal.read(stream, response, self._inventory))
            case HeldRead():
                self._tell_held(response)
            case DefinitionRead():
                self._definition_read(response)
            case DefinitionWritten() as call:
                self._definition_written(call, response)
            case None:
                pass  # no open call has this matchtag

    def _replay(self, now: float, response: Response) -> None:
        try:
            exclude = self._definition.excluded()
        except FluxError as error:
            self._outbox.send(Exit(f"resource.exclude: {error.text}"))
            return
        self._groups.take(self._inventory, exclude)
        try:
            self._administration.replay(value_in(response) or "")
        except FluxError as error:
            self._outbox.send(cannot_read(EVENTLOG_KEY, error))
            return
        except FormatError as error:
            self._outbox.send(Exit(f"cannot read {EVENTLOG_KEY}: {error}"))
            return
        self._replayed = True
        self._administration.downs.find_missing(now, self._missing)
        for targets, down in self._administration.downs.by_idset().items():
            self._note(_noted(OFFLINE), Idset.parse(targets))
            reason = f": {down.reason}" if down.reason else ""
            self._outbox.send(Log(Level.WARNING, f"targets {targets} are down{reason}"))
        stamp = self._administration.stamp(now)
        if self._checks is not None:
            self._begin_checks(now)
        elif (event := self._administration.stop_checking(stamp)) is not None:
            self._commit(None, [event])
        early, self._early = self._early, []
        for request in early:
            self._request(request)

    def _committed(self, response: Response) -> None:
        assert self._committing is not None
        (request, events), self._committing = self._committing, None
        if response.errnum and request is not None:
            self._outbox.send(respond_error(request, response.errnum, response.error_text))
            return
        for event in events:  # without a request, even if not stored: a start repeats them
            self._apply(event)
        if request is not None:
            self._outbox.send(respond(request))

    def _apply(self, event: Event) -> None:
        before = self._administration.downs.targets
        self._administration.apply(event)
        self._outbox.send_all(self._journal.told(event))
        context = event.context or {}
        shown = " ".join(f"{key}={value}" for key, value in context.items())
        level = Level.WARNING if event.name == OFFLINE else Level.INFO
        self._outbox.send(Log(level, f"{event.name} {shown}"))
        self._note(_noted(event.name), Idset.parse(context["idset"]))
        after = self._administration.downs.targets
        if lost := after - before:
            offline = flux.TargetsOffline(str(lost), context["reason"])
            self._publish(topics.RESOURCE_OFFLINE_EVENT, flux.TARGETS_OFFLINE, offline)
        if back := before - after:
            online = flux.TargetsOnline(str(back))
            self._publish(topics.RESOURCE_ONLINE_EVENT, flux.TARGETS_ONLINE, online)

    def _publish(self, topic: str, codec: Codec[T], value: T) -> None:
        self._outbox.send(EventMessage(topic, codec.write(value)))

    def _note(self, what: str, targets: Idset) -> None:
        self._outbox.send(Note(Kind.RESOURCE, {"what": what, "targets": str(targets)}))


def _noted(event: str) -> str:
    """Return the name that the trace has for an event of the eventlog."""
    if event == OFFLINE:
        return "down"
    return "up" if event == ONLINE else event
