"""What the resource service decides: RFC 28 from the resource side, and administration. Pure.

`resource.acquire` and `resource.release` are the RFC's; a stream tells its holder of every change.
Administration is the instance owner's, targets being text, an idset or a hostlist:

- `resource.drain` {"targets", "reason"?} and `resource.undrain` {"targets"}, answered with nothing
  once the event is durable in the kvs at `resource.eventlog`, from which a start replays them;
- `resource.targets-down` {"targets", "reason"?} and `resource.targets-up` {"targets"}: the targets
  have failed, or are back; answered as a drain is, and kept as one. The check command's word
  (`[resource.check]`) is kept so, too. Everybody who subscribes gets the event `resource-offline`
  {"targets", "reason"} or `resource-online` {"targets"};
- `resource.exclude` {"targets"}, "" for none: the members of the exclude group from now on, until
  the next start, when the configuration says again;
- `resource.expiration-update` {"expiration"}, when the whole instance ends, 0 for never: whoever
  acquired gets R anew, everybody else the event `resource-expiration` {"expiration"};
- `resource.status`, for everybody: {"R": all resources, "drained": {idset: {"timestamp": seconds,
  "reason": text}}, "offline": idset, "down": {idset: {"timestamp": seconds, "by": "operator",
  "check" or "start", "reason": text}}, "exclude": idset}. Offline are those that are down; drained
  ones are offline to a scheduler too (28.offline.6) but not listed there.

Left out: which drained targets still have jobs, since only the job manager knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from flux_trio.cores.lookups import cannot_read
from flux_trio.cores.methods import Methods
from flux_trio.cores.resource.administration import Administration
from flux_trio.cores.resource.checks import Checked, Checks, NotChecked
from flux_trio.cores.resource.downs import OFFLINE, ONLINE
from flux_trio.cores.resource.groups import Groups
from flux_trio.cores.resource.targets import parse_targets
from flux_trio.cores.turns import Exit, Log, Note, SetTimer, TimerFired
from flux_trio.formats import Event, FormatError, Idset, ResourceSet, format_event
from flux_trio.messages import (
    Calls,
    Errno,
    FluxError,
    Level,
    Request,
    Response,
    expect_payload,
    respond,
    respond_error,
    topics,
)
from flux_trio.messages import Event as EventMessage
from flux_trio.trace import Kind

EVENTLOG_KEY: Final = "resource.eventlog"
CHECK_TIMER: Final = "check"
_NOTED: Final = {OFFLINE: "down", ONLINE: "up"}  # events that the trace has by another name


class _Acquire(msgspec.Struct, frozen=True):
    group: str


class _Release(msgspec.Struct, frozen=True):
    group: str
    targets: str


class _Targets(msgspec.Struct, frozen=True):
    targets: str


class _Expiration(msgspec.Struct, frozen=True):
    expiration: Annotated[float, msgspec.Meta(ge=0)]


class ResourceCore:
    """The whole state of the resource service. `exclude` is among the targets of `inventory`.

    `missing` says what this machine lacks of targets, which are down from the start. With
    `check_interval_s` the check command looks at every target that often (seconds).
    """

    def __init__(
        self,
        inventory: ResourceSet,
        exclude: Idset,
        *,
        missing: Mapping[int, str] | None = None,
        check_interval_s: float | None = None,
    ) -> None:
        self._inventory = inventory
        self._groups = Groups(inventory, exclude)
        self._administration = Administration(inventory)  # of durable events
        self._missing = dict(missing or {})
        self._checks: Checks | None = None
        if check_interval_s is not None:
            self._checks = Checks(self._administration.hosts.by_target, check_interval_s)
        self._calls: Calls[str] = Calls()  # the topic of each
        self._replayed = False  # until then requests wait: the first grow must tell the truth
        self._early: list[Request] = []
        self._waiting: deque[Request] = deque()  # administration that is logged, one at a time
        self._committing: tuple[Request | None, list[Event]] | None = None
        self._actions: list[Any] = []
        self._methods = Methods(
            for_owner={
                topics.RESOURCE_ACQUIRE: self._acquire,
                topics.RESOURCE_RELEASE: self._release,
                topics.RESOURCE_DRAIN: self._waiting.append,
                topics.RESOURCE_UNDRAIN: self._waiting.append,
                topics.RESOURCE_DOWN: self._waiting.append,
                topics.RESOURCE_UP: self._waiting.append,
                topics.RESOURCE_EXCLUDE: self._exclude,
                topics.RESOURCE_EXPIRATION: self._expire,
            },
            for_all={
                topics.RESOURCE_STATUS: self._status,
                topics.disconnect_of(topics.RESOURCE): self._disconnect,
            },
            stats=(topics.stats_of(topics.RESOURCE), self._stats),
        )

    def start(self, now: float) -> list[Any]:  # noqa: ARG002 - the shape of a core
        """Ask for what earlier runs have logged."""
        self._ask(topics.KVS_LOOKUP, {"key": EVENTLOG_KEY})
        return self._take_actions()

    def turn(self, now: float, inputs: list[Any]) -> list[Any]:
        """Take requests, checks and the kvs's answers; tell those who acquired what changed."""
        for item in inputs:
            match item:
                case Request():
                    self._request(item)
                case Response():
                    self._response(now, item)
                case Checked() | NotChecked():
                    self._checked(item)
                case TimerFired():
                    self._begin_checks(now)
        self._commit_next(now)
        self._actions += self._groups.tell(self._inventory.ranks - self._administration.unavailable)
        return self._take_actions()

    def _stats(self) -> dict[str, Any]:
        ranks = self._inventory.ranks
        down, drained = self._administration.downs.targets, self._administration.drains.targets
        return {"nodes": {"all": len(ranks), "down": len(down), "drained": len(drained)}}

    def _request(self, request: Request) -> None:
        if self._replayed:
            self._send(self._methods.call(request))
        else:
            self._early.append(request)

    # RFC 28

    def _acquire(self, request: Request) -> None:
        if not request.is_streaming:
            raise FluxError(Errno.EPROTO, f"{request.topic}: expected the streaming flag")
        self._groups.acquire(expect_payload(request, _Acquire).group, request)

    def _release(self, request: Request) -> None:
        release = expect_payload(request, _Release)
        try:
            targets = Idset.parse(release.targets)
        except FormatError as error:
            raise error.at("targets") from None
        self._groups.release(release.group, request.sender, targets)
        self._send(respond(request))

    def _disconnect(self, request: Request) -> None:
        self._groups.disconnect(request.sender)

    # Administration

    def _exclude(self, request: Request) -> None:
        text = expect_payload(request, _Targets).targets
        targets = parse_targets(text, self._inventory) if text else Idset()
        self._groups.exclude = targets
        self._note("exclude", targets)
        self._send(respond(request))

    def _expire(self, request: Request) -> None:
        """The instance runs in a job, and that has a new end."""
        expiration = expect_payload(request, _Expiration).expiration
        starttime = self._inventory.starttime
        if 0 < expiration <= starttime:
            text = f"{request.topic}: expiration: {expiration} is not after {starttime}, the start"
            raise FluxError(Errno.EINVAL, text)
        self._inventory = self._inventory.with_times(starttime, expiration)
        self._actions += self._groups.renew(self._inventory)
        payload = {"expiration": expiration}
        self._actions.append(EventMessage(topics.RESOURCE_EXPIRATION_EVENT, payload))
        self._send(respond(request))

    def _status(self, request: Request) -> None:
        status = {
            "R": self._inventory.to_json(),
            "drained": self._administration.drains.to_json(),
            "offline": str(self._administration.downs.targets),
            "down": self._administration.downs.to_json(),
            "exclude": str(self._groups.exclude),
        }
        self._send(respond(request, status))

    def _commit_next(self, now: float) -> None:
        """Make the next change that is in order durable; each is judged on the last.

        An excluded target cannot be drained too (flux-config-resource(5), `exclude`).
        """
        if self._committing or not self._replayed:
            return
        if both := self._administration.drains.targets & self._groups.exclude:
            event = self._administration.drains.undrain(now, both)
            assert event is not None  # all of them are drained
            self._commit(None, [event])
        while self._waiting and self._committing is None:
            request = self._waiting.popleft()
            try:
                event = self._administration.event_for(now, request, self._groups.exclude)
            except FluxError as error:
                self._send(respond_error(request, error.errnum, error.text))
                continue
            if event is None:
                self._send(respond(request))
            else:
                self._commit(request, [event])
        if self._checks is not None and self._committing is None:
            self._commit(None, self._administration.events_for(now, self._checks))

    def _commit(self, request: Request | None, events: list[Event]) -> None:
        """Log `events`, which are what `request` asks for, if it was asked for; none is nothing."""
        if not events:
            return
        self._committing = (request, events)
        ops = [["append", EVENTLOG_KEY, format_event(event)] for event in events]
        self._ask(topics.KVS_COMMIT, {"ops": ops})

    # Checks

    def _begin_checks(self, now: float) -> None:
        if self._checks is not None:
            self._actions += self._checks.begin(now)

    def _checked(self, result: Checked | NotChecked) -> None:
        assert self._checks is not None  # else nobody would run any
        if isinstance(result, Checked):
            self._checks.checked(result)
        elif complaint := self._checks.not_checked(result):
            self._actions.append(Log(Level.ERR, complaint))
        if (at := self._checks.next_at()) is not None:
            self._actions.append(SetTimer(CHECK_TIMER, at))

    # The kvs

    def _ask(self, topic: str, payload: dict[str, Any]) -> None:
        self._actions.append(Request(topic, payload, self._calls.open(topic)))

    def _response(self, now: float, response: Response) -> None:
        asked = self._calls.match(response)
        if asked == topics.KVS_LOOKUP:
            self._replay(now, response)
        elif asked == topics.KVS_COMMIT:
            self._committed(response)

    def _replay(self, now: float, response: Response) -> None:
        try:
            if response.errnum == 0:
                self._administration.replay(_text(response))
            elif response.errnum != Errno.ENOENT:
                raise FluxError(response.errnum, response.error_text)
        except FluxError as error:
            self._actions.append(cannot_read(EVENTLOG_KEY, error))
            return
        except FormatError as error:
            self._actions.append(Exit(f"cannot read {EVENTLOG_KEY}: {error}"))
            return
        self._replayed = True
        self._administration.find_missing(now, self._missing)
        for targets, down in self._administration.downs.to_json().items():
            self._note(_NOTED[OFFLINE], Idset.parse(targets))
            reason = f": {down['reason']}" if down["reason"] else ""
            self._actions.append(Log(Level.WARNING, f"targets {targets} are down{reason}"))
        if self._checks is not None:
            self._begin_checks(now)
        elif (event := self._administration.stop_checking(now)) is not None:
            self._commit(None, [event])
        early, self._early = self._early, []
        for request in early:
            self._request(request)

    def _committed(self, response: Response) -> None:
        assert self._committing is not None
        (request, events), self._committing = self._committing, None
        if response.errnum and request is not None:
            self._send(respond_error(request, response.errnum, response.error_text))
            return
        for event in events:  # our own even if they are not durable: a start repeats them
            self._apply(event)
        if request is not None:
            self._send(respond(request))

    def _apply(self, event: Event) -> None:
        before = self._administration.downs.targets
        self._administration.apply(event)
        context = event.context or {}
        shown = " ".join(f"{key}={value}" for key, value in context.items())
        level = Level.WARNING if event.name == OFFLINE else Level.INFO
        self._actions.append(Log(level, f"{event.name} {shown}"))
        self._note(_NOTED.get(event.name, event.name), Idset.parse(context["idset"]))
        after = self._administration.downs.targets
        if lost := after - before:
            payload = {"targets": str(lost), "reason": context["reason"]}
            self._actions.append(EventMessage(topics.RESOURCE_OFFLINE_EVENT, payload))
        if back := before - after:
            payload = {"targets": str(back)}
            self._actions.append(EventMessage(topics.RESOURCE_ONLINE_EVENT, payload))

    # Actions

    def _note(self, what: str, targets: Idset) -> None:
        self._actions.append(Note(Kind.RESOURCE, {"what": what, "targets": str(targets)}))

    def _send(self, response: Response | None) -> None:
        if response is not None:
            self._actions.append(response)

    def _take_actions(self) -> list[Any]:
        actions, self._actions = self._actions, []
        return actions


class _Lookup(msgspec.Struct, frozen=True):
    value: str


def _text(response: Response) -> str:
    return expect_payload(response, _Lookup).value
