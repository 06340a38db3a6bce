"""What the resource service decides: RFC 28 from the resource side, and administration. Pure.

`resource.acquire` and `resource.release` are the RFC's; a stream tells its holder of every change.
Administration is the instance owner's, targets being text, an idset or a hostlist:

- `resource.drain` {"targets", "reason"?} and `resource.undrain` {"targets"}, answered with nothing
  once the event is durable in the kvs at `resource.eventlog`, from which a start replays them;
- `resource.exclude` {"targets"}, "" for none: the members of the exclude group from now on, until
  the next start, when the configuration says again;
- `resource.expiration-update` {"expiration"}, when the whole instance ends, 0 for never: whoever
  acquired gets R anew, everybody else the event `resource-expiration` {"expiration"};
- `resource.status`, for everybody: {"R": all resources, "drained": {idset: {"timestamp": seconds,
  "reason": text}}, "offline": idset, "exclude": idset}. Offline are those that went down; drained
  ones are offline to a scheduler too (28.offline.6) but not listed there.

Left out: which drained targets still have jobs, since only the job manager knows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from flux_trio.formats import Event, FormatError, Idset, ResourceSet, format_event
from flux_trio.messages import (
    Calls,
    Errno,
    FluxError,
    Request,
    Response,
    expect_payload,
    respond,
    respond_error,
    topics,
)
from flux_trio.messages import Event as EventMessage
from flux_trio.services.methods import Methods
from flux_trio.services.resource.drains import Drains, Mode
from flux_trio.services.resource.groups import Groups
from flux_trio.services.resource.targets import parse_targets
from flux_trio.services.turns import Exit, Log, Note
from flux_trio.trace import Kind

EVENTLOG_KEY: Final = "resource.eventlog"
_LOG_INFO: Final = 6

# A lone surrogate is no character, and cannot be written to an eventlog.
_Reason = Annotated[str, msgspec.Meta(max_length=1000, pattern=r"\A[^\ud800-\udfff]*\Z")]


@dataclass(frozen=True, slots=True)
class TargetsDown:
    """Input: `targets` can no longer be used, without anybody having asked for it."""

    targets: Idset


@dataclass(frozen=True, slots=True)
class TargetsUp:
    """Input: `targets` that were down can be used again."""

    targets: Idset


class _Acquire(msgspec.Struct, frozen=True):
    group: str


class _Release(msgspec.Struct, frozen=True):
    group: str
    targets: str


class _Drain(msgspec.Struct, frozen=True):
    targets: str
    reason: _Reason | None = None
    mode: Mode | None = None


class _Targets(msgspec.Struct, frozen=True):
    targets: str


class _Expiration(msgspec.Struct, frozen=True):
    expiration: Annotated[float, msgspec.Meta(ge=0)]


class ResourceCore:
    """The whole state of the resource service. `exclude` is among the targets of `inventory`."""

    def __init__(self, inventory: ResourceSet, exclude: Idset) -> None:
        self._inventory = inventory
        self._groups = Groups(inventory, exclude)
        self._drains = Drains(inventory)  # of durable events
        self._down = Idset()
        self._calls: Calls[str] = Calls()  # the topic of each
        self._replayed = False  # until then requests wait: the first grow must tell the truth
        self._early: list[Request] = []
        self._waiting: deque[Request] = deque()  # drains and undrains, one at a time
        self._committing: tuple[Request | None, Event] | None = None
        self._actions: list[Any] = []
        self._methods = Methods(
            for_owner={
                topics.RESOURCE_ACQUIRE: self._acquire,
                topics.RESOURCE_RELEASE: self._release,
                topics.RESOURCE_DRAIN: self._waiting.append,
                topics.RESOURCE_UNDRAIN: self._waiting.append,
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
        """Ask for the drains of earlier days."""
        self._ask(topics.KVS_LOOKUP, {"key": EVENTLOG_KEY})
        return self._take_actions()

    def turn(self, now: float, inputs: list[Any]) -> list[Any]:
        """Take requests and the kvs's answers; answer, and tell those who acquired what changed."""
        for item in inputs:
            match item:
                case Request():
                    self._request(item)
                case Response():
                    self._response(item)
                case TargetsDown(targets):
                    self._down |= targets & self._inventory.ranks
                    self._note("down", targets)
                case TargetsUp(targets):
                    self._down -= targets
                    self._note("up", targets)
        self._commit_next(now)
        up = self._inventory.ranks - self._down - self._drains.targets
        self._actions += self._groups.tell(up)
        return self._take_actions()

    def _stats(self) -> dict[str, Any]:
        ranks = self._inventory.ranks
        drained = self._drains.targets & ranks
        return {"nodes": {"all": len(ranks), "down": len(self._down), "drained": len(drained)}}

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
            "drained": self._drains.to_json(),
            "offline": str(self._down),
            "exclude": str(self._groups.exclude),
        }
        self._send(respond(request, status))

    def _commit_next(self, now: float) -> None:
        """Make the next drain or undrain that is in order durable; each is judged on the last.

        An excluded target cannot be drained too (flux-config-resource(5), `exclude`).
        """
        if self._committing:
            return
        if both := self._drains.targets & self._groups.exclude:
            event = self._drains.undrain(now, both)
            assert event is not None  # all of them are drained
            self._commit(None, event)
        while self._waiting and self._committing is None:
            request = self._waiting.popleft()
            try:
                event = self._event(now, request)
            except FluxError as error:
                self._send(respond_error(request, error.errnum, error.text))
                continue
            if event is None:
                self._send(respond(request))
            else:
                self._commit(request, event)

    def _commit(self, request: Request | None, event: Event) -> None:
        self._committing = (request, event)
        self._ask(topics.KVS_COMMIT, {"ops": [["append", EVENTLOG_KEY, format_event(event)]]})

    def _event(self, now: float, request: Request) -> Event | None:
        asked = expect_payload(request, _Drain)
        targets = parse_targets(asked.targets, self._inventory)
        if request.topic == topics.RESOURCE_DRAIN:
            exclude = self._groups.exclude
            return self._drains.drain(now, targets, asked.reason, exclude, asked.mode)
        return self._drains.undrain(now, targets, asked.reason, asked.mode)

    # The kvs

    def _ask(self, topic: str, payload: dict[str, Any]) -> None:
        self._actions.append(Request(topic, payload, self._calls.open(topic)))

    def _response(self, response: Response) -> None:
        asked = self._calls.match(response)
        if asked == topics.KVS_LOOKUP:
            self._replay(response)
        elif asked == topics.KVS_COMMIT:
            self._committed(response)

    def _replay(self, response: Response) -> None:
        try:
            if response.errnum == 0:
                self._drains.replay(_text(response))
            elif response.errnum != Errno.ENOENT:
                raise FluxError(response.errnum, response.error_text)
        except (FluxError, FormatError) as error:
            self._actions.append(Exit(f"cannot read {EVENTLOG_KEY}: {error}"))
            return
        self._replayed = True
        early, self._early = self._early, []
        for request in early:
            self._request(request)

    def _committed(self, response: Response) -> None:
        assert self._committing is not None
        (request, event), self._committing = self._committing, None
        if response.errnum and request is not None:
            self._send(respond_error(request, response.errnum, response.error_text))
            return
        self._drains.apply(event)  # our own undrain even if it is not durable: a start repeats it
        context = event.context or {}
        shown = " ".join(f"{key}={value}" for key, value in context.items())
        self._actions.append(Log(_LOG_INFO, f"{event.name} {shown}"))
        self._note(event.name, Idset.parse(context["idset"]))
        if request is not None:
            self._send(respond(request))

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
