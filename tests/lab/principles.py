"""The seven principles of an exercise, and what a run has shown of each of them in each act.

Nothing is declared: it is read from the messages and events that passed while the act was played.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from flux_trio.editions.rfc27 import AllocType
from flux_trio.formats import FormatError, Idset, job_key, parse_r
from flux_trio.lab.exercise import Act, Report
from flux_trio.messages import Errno, Request, Response, payload_bytes, topics
from flux_trio.trace import Kind, Record


class Principle(StrEnum):
    """What has to be looked at of whatever an act does."""

    BYSTANDERS = "bystanders"
    """What is done to one job does nothing to others; the cell has how many there are at most."""
    LIMITS = "both sides"
    """What is just possible is done, and what is just not possible is not."""
    LISTS = "lists"
    """Lists that have at least three entries; a program may know the first, or the last, alone."""
    NUMBERS = "extremes"
    """Numbers and payloads that are as large as they can be, or do not lie side by side."""
    REFUSED = "refused"
    """Requests of the program that are refused."""
    WAITED = "waited"
    """Times that are asked of a job which has waited."""
    RESTARTS = "restarts"
    """The states of jobs at the time at which the program comes again."""


LIST_MIN: Final = 3
LARGE_MIN: Final = 2**16  # bytes of a payload
PRIORITY_MIN: Final = 2**31  # a priority that is negative in 32 bits with a sign
STATUS_MIN: Final = 255 << 8  # the greatest exit code
WAITED_S: Final = 0.5
_SETS: Final = ("targets", "online", "offline", "ranks", "down", "shrink")
_LISTS: Final = ("jobs", "R_lite", "command", "nodelist")


@dataclass
class _Job:
    t_submit: float
    is_asked: bool = False
    duration: float = 0.0
    t_granted: float = 0.0
    ranks: Idset = field(default_factory=Idset)
    events: set[str] = field(default_factory=set)
    is_ended: bool = False  # a fatal exception has come

    @property
    def is_active(self) -> bool:
        return "clean" not in self.events


Shown: TypeAlias = Mapping[str, Mapping[Principle, Mapping[str, None]]]
"""By the title of the act and the principle: words for what was shown."""


class Principles(Report):
    """What acts have shown."""

    def __init__(self) -> None:
        self._is_program: Callable[[str], bool] = bool
        self.shown: dict[str, dict[Principle, dict[str, None]]] = {}
        """By the title of the act and the principle: words for what was shown."""
        self._jobs: dict[int, _Job] = {}
        self._unfit: dict[str, Idset] = {}  # targets that the program knows to be down, or taken
        self._hellos = 0  # answers in the stream that tells of jobs with resources
        self._sides: Counter[str] = Counter()
        self._act: dict[Principle, dict[str, None]] = {}

    def begins(self, act: Act) -> None:
        self._act = self.shown.setdefault(act.title, {})
        self._sides.clear()

    def sits(self, is_program: Callable[[str], bool]) -> None:
        self._is_program = is_program
        self._jobs.clear()
        self._unfit.clear()

    def _show(self, principle: Principle, what: str) -> None:
        self._act.setdefault(principle, {})[what] = None

    def observe(self, record: Record) -> None:
        if record.kind == Kind.EVENT and record.data is not None:
            self._logged(record.data["id"], record.data, record.t)
        elif record.kind == Kind.SEND:
            match record.message:
                case Request() as request if self._is_program(record.party):
                    self._asks(request)
                case Response() as response if self._is_program(record.party):
                    self._answers(response, record.t)
                case Request() | Response() as message if self._is_program(record.peer):
                    self._is_told(message, record.t)

    # --- events of jobs

    def _logged(self, jobid: int, event: Any, t: float) -> None:
        name, context = event["name"], event.get("context") or {}
        job = self._jobs.setdefault(jobid, _Job(t))
        job.events.add(name)
        if name == "exception" and context.get("severity") == 0:
            job.is_ended = True
            self._touched(jobid)
            if context.get("type") == "timeout":
                self._side("time limit", over=True)
        elif name == "exception":
            self._touched(jobid)
        elif name == "start" and job.duration and t - job.t_submit > WAITED_S:
            self._show(Principle.WAITED, f"a limit of {job.duration:g} s")
        elif name == "finish" and not job.is_ended:
            if context.get("status"):
                self._touched(jobid)
            if job.duration:
                self._side("time limit", over=False)

    def _touched(self, jobid: int) -> None:
        """Something is done to a job: count those beside it."""
        beside = sum(
            each.is_active and not each.is_ended for of, each in self._jobs.items() if of != jobid
        )
        if beside:
            best = max([beside, *map(int, self._act.get(Principle.BYSTANDERS, {}))])
            self._act[Principle.BYSTANDERS] = {str(best): None}

    def _side(self, limit: str, *, over: bool) -> None:
        self._sides[f"{limit} {over}"] += 1
        if self._sides[f"{limit} True"] and self._sides[f"{limit} False"]:
            self._show(Principle.LIMITS, limit)

    # --- messages of the program

    def _asks(self, request: Request) -> None:
        if request.topic in (topics.SCHED_HELLO, topics.EXEC_HELLO):
            self._hellos = 0
            self._comes_again(self._jobs.values())
        if request.topic == topics.KVS_COMMIT and isinstance(request.payload, dict):
            for jobid, job in self._jobs.items():
                key = job_key(jobid, "R")
                for op in request.payload.get("ops", ()):
                    if op[:2] == ["put", key]:
                        job.ranks = _ranks(op[2])

    def _comes_again(self, jobs: Iterable[_Job]) -> None:
        for job in jobs:
            for state in self._states(job):
                self._show(Principle.RESTARTS, state)

    def _states(self, job: _Job) -> Iterator[str]:
        if not job.is_active or not job.is_asked:
            return
        if not job.t_granted:
            yield "waiting"
            return
        yield "canceled" if job.is_ended else "running"
        if "release" in job.events:
            yield "releasing"
        for why, targets in self._unfit.items():
            if job.ranks & targets:
                yield f"on a node that is {why}"

    def _answers(self, response: Response, t: float) -> None:
        found = response.payload if isinstance(response.payload, dict) else {}
        job = self._jobs.get(found.get("id", 0))
        if job is None or response.topic != topics.SCHED_ALLOC:
            return
        if found.get("type") == AllocType.SUCCESS:
            job.t_granted = t
            self._side("what there is", over=False)
            if job.duration and t - job.t_submit > WAITED_S:
                self._show(Principle.WAITED, f"a limit of {job.duration:g} s")
        elif found.get("type") == AllocType.DENY:
            self._side("what there is", over=True)

    def _is_told(self, message: Request | Response, t: float) -> None:
        del t
        if isinstance(message, Response) and message.errnum:
            if message.errnum not in (Errno.ENODATA, Errno.ENOSYS):
                self._show(Principle.REFUSED, message.topic)
        else:
            self._passes(message)

    def _passes(self, message: Request | Response) -> None:
        """A message passes that says something of jobs or of resources."""
        if payload_bytes(message) > LARGE_MIN:
            self._show(Principle.NUMBERS, f"{payload_bytes(message) >> 10} KiB")
        found: Any = message.payload
        if not isinstance(found, dict):
            return
        self._look(message.topic, found)
        is_request = isinstance(message, Request)
        match message.topic:
            case topics.SCHED_ALLOC if is_request:
                self._is_asked(found)
            case topics.SCHED_PRIORITIZE | topics.SCHED_EXPIRATION:
                self._touched(0)
                for _, priority in found.get("jobs", ()):
                    self._priority(priority)
            case topics.SCHED_HELLO if not is_request:
                self._hellos += 1
                if self._hellos >= LIST_MIN:
                    self._show(Principle.LISTS, "jobs of hello")
            case topics.RESOURCE_ACQUIRE:
                self._changed(found)
            case topic if is_request and topic.endswith(f".{topics.START_METHOD}"):
                self._is_asked(found)

    def _is_asked(self, found: Any) -> None:
        jobid, jobspec = found.get("id", 0), found.get("jobspec", {})
        job = self._jobs.setdefault(jobid, _Job(0.0))
        job.is_asked = True
        job.duration = jobspec.get("attributes", {}).get("system", {}).get("duration", 0.0)
        if "priority" in found:
            self._priority(found["priority"])
        else:
            job.t_granted = 1.0  # it is started: it has resources
            for task in jobspec.get("tasks", ()):
                if len(task["command"]) > 2 * LIST_MIN:
                    self._show(Principle.LISTS, "arguments")

    def _priority(self, priority: int) -> None:
        if priority >= PRIORITY_MIN or priority == 1:
            self._show(Principle.NUMBERS, f"priority {priority}")

    def _changed(self, change: Any) -> None:
        kind, targets = change.get("type"), _idset(change.get("targets"))
        keys = {"offline": "down", "online": "up", "shrink": "shrink"}  # of the current edition
        offline, online, taken = (
            _idset(change.get(name))
            | _idset(change.get(key))
            | (targets if name == kind else Idset())
            for name, key in keys.items()
        )
        self._unfit["down"] = (self._unfit.get("down", Idset()) | offline) - online
        self._unfit["taken away"] = (self._unfit.get("taken away", Idset()) | taken) - online
        if taken or offline:
            self._touched(0)

    def _look(self, topic: str, found: Any, above: str = "") -> None:
        """Show the lists in a payload that have three entries or more, as arrays or idsets."""
        name = topic.rpartition(".")[2]
        for key, value in found.items():
            is_list = isinstance(value, list) and key in _LISTS and len(value) >= LIST_MIN
            is_set = key in _SETS and len(_idset(value)) >= LIST_MIN
            if (is_list and key != "command") or is_set:
                self._show(Principle.LISTS, f"{key} of {above or name}")
            if isinstance(value, dict) and key != "jobspec":
                self._look(topic, value, above)


class OfManager(Principles):
    """What acts have shown to a job manager: it asks what the others are asked."""

    def _logged(self, jobid: int, event: Any, t: float) -> None:
        super()._logged(jobid, event, t)
        match event["name"]:
            case "urgency" | "jobspec-update":
                self._touched(jobid)
            case "flux-restart":
                self._comes_again([self._jobs[jobid]])
            case "finish" if (status := event["context"]["status"]) >= STATUS_MIN:
                self._show(Principle.NUMBERS, f"status {status}")

    def _asks(self, request: Request) -> None:
        self._passes(request)

    def _answers(self, response: Response, t: float) -> None:
        service, _, method = response.topic.partition(".")
        if service == topics.JOB_MANAGER and response.errnum != Errno.ENODATA:
            self._side(method, over=response.errnum != 0)
        if not response.errnum:
            self._passes(response)

    def _is_told(self, message: Request | Response, t: float) -> None:
        if isinstance(message, Request) and message.topic == topics.SCHED_HELLO:
            self._hellos = 0
        super()._is_told(message, t)
        if isinstance(message, Response) and not message.errnum:
            super()._answers(message, t)


def _idset(text: object) -> Idset:
    try:
        return Idset.parse(text) if isinstance(text, str) else Idset()
    except FormatError:
        return Idset()


def _ranks(text: str) -> Idset:
    try:
        return parse_r(text).ranks
    except FormatError:
        return Idset()


def in_all(runs: Sequence[Shown]) -> Shown:
    """Return what all runs have shown, and the least number of bystanders."""
    found: dict[str, dict[Principle, dict[str, None]]] = {}
    for title in runs[0]:
        found[title] = {}
        for each in Principle:
            shown = [run.get(title, {}).get(each, {}) for run in runs]
            words = set(shown[0]).intersection(*shown)
            if each is Principle.BYSTANDERS and all(shown):
                words = {str(min(int(word) for run in shown for word in run))}
            found[title][each] = dict.fromkeys(sorted(words))
    return found


def table(shown: Shown) -> str:
    """Return a table act x principle in Markdown."""
    lines = [f"| act | {' | '.join(Principle)} |", f"|---|{'---|' * len(Principle)}"]
    for title, by_principle in shown.items():
        cells = (", ".join(sorted(by_principle.get(each, ()))) for each in Principle)
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def read(text: str) -> Shown:
    """Return what a table says."""
    found = {}
    for line in text.strip().splitlines()[2:]:
        title, *cells = (cell.strip() for cell in line.split("|")[1:-1])
        words = (dict.fromkeys(filter(None, cell.split(", "))) for cell in cells)
        found[title] = dict(zip(Principle, words, strict=True))
    return found
