"""Which situations the worlds of a campaign drew and which of them occurred.

A situation that is drawn and never occurs is tested by nobody: so a report names both. What is
drawn is read from a plan, what occurred from the records of its trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from flux_trio.config import QUEUE_KEY
from flux_trio.cores.job_index import jobid_in
from flux_trio.lab.catalogue import Recover, When
from flux_trio.lab.plans.plan import Plan
from flux_trio.messages import Event, Request, Response, topics
from flux_trio.protocols import JobEvent, JobState
from flux_trio.trace import Kind, Record

SECOND_PAGE: Final = "second page"
MOVE: Final = "queue update"
MOVE_AGAIN: Final = "second queue update of a job"
HISTORY: Final = "history request"
HISTORY_AFTER_PURGE: Final = "purge between two history requests"
PURGE_BEFORE_PAGE: Final = "purge of jobs on a page that job-list waits for"
NEVER_FIT: Final = "two jobs that can never run"
RELEASED: Final = "two held jobs released, the later starts first"
RELOADED: Final = "job manager starts with a job in "
RECOVERED: Final = "recovery after a kill: "
BACKED_UP: Final = "backup while jobs start and end"
BACKUP_CUT: Final = "kill before a backup is complete"
BACKUP_RESTORED: Final = "backup of a running instance restored"


def _moves(plan: Plan) -> Counter[int]:
    return Counter(each.job for each in plan.actions if each.what == "move")


def _asks(plan: Plan, *wanted: str) -> bool:
    """Whether the plan has these requests, each as often as it is named."""
    return not Counter(wanted) - Counter(each.what for each in plan.actions)


def _recovers(tool: str) -> Callable[[Plan], bool]:
    return lambda plan: any(getattr(each, "tool", None) == tool for each in plan.faults)


def _strikes(plan: Plan, module: str) -> bool:
    return any(getattr(each, "module", "") == module for each in plan.faults)


def _is_killed(plan: Plan, *, is_complete: bool) -> bool:
    """Whether the plan has a backup, and a kill as that is complete, or at another moment."""
    places = [each.place for each in plan.faults if isinstance(each, Recover)]
    at = [isinstance(each, When) and each.topic in topics.BACKUPS for each in places]
    return _asks(plan, "backup") and is_complete in at


def _is_released_again(plan: Plan) -> bool:
    held = {place for place, job in enumerate(plan.jobs) if job.urgency == 0}
    released = {each.job for each in plan.actions if each.what == "urgency" and each.value}
    return len(held & released) > 1


_ACTIVE: Final = [each for each in JobState if each is not JobState.INACTIVE]

SITUATIONS: Final[dict[str, Callable[[Plan], bool]]] = {
    SECOND_PAGE: lambda plan: plan.pages > 0,
    MOVE: lambda plan: bool(_moves(plan)),
    MOVE_AGAIN: lambda plan: max(_moves(plan).values(), default=0) > 1,
    HISTORY: lambda plan: _asks(plan, "history"),
    HISTORY_AFTER_PURGE: lambda plan: _asks(plan, "history", "purge", "history"),
    PURGE_BEFORE_PAGE: lambda plan: _asks(plan, "purge") and _strikes(plan, topics.JOB_LIST),
    NEVER_FIT: lambda plan: len(plan.jobs) > 1,
    RELEASED: _is_released_again,
    **{RELOADED + state.name: lambda plan: bool(plan.faults) for state in _ACTIVE},
    **{RECOVERED + tool: _recovers(tool) for tool in ("nothing", "repair", "restore")},
    BACKED_UP: lambda plan: _asks(plan, "backup"),
    BACKUP_CUT: lambda plan: _is_killed(plan, is_complete=False),
    BACKUP_RESTORED: lambda plan: _is_killed(plan, is_complete=True),
}
"""By name of a situation: whether a plan draws it."""


def drawn(plan: Plan) -> frozenset[str]:
    """Return the situations that the plan draws."""
    return frozenset(name for name, is_drawn in SITUATIONS.items() if is_drawn(plan))


class Situations:
    """Which situations the worlds of a campaign drew, and in which they occurred."""

    def __init__(self) -> None:
        self.drawn: Counter[str] = Counter()
        self.occurred: Counter[str] = Counter()

    def add(self, drawn: Iterable[str], occurred: Iterable[str]) -> None:
        """Count a world."""
        self.drawn.update(drawn)
        self.occurred.update(occurred)


class NotedSituations:
    """Notes the situations that occur in one world; it has to get the records of the trace."""

    def __init__(self) -> None:
        self.occurred: set[str] = set()
        self._moves: Counter[int] = Counter()  # by job
        self._never_fit: set[int] = set()
        self._read: list[str] = []  # answers to requests for the history, and to purges
        self._released: list[int] = []  # jobs that were held
        self._states: dict[int, JobState] = {}
        self._limits: dict[tuple[str, int], object] = {}  # of open reads, by reader and matchtag
        self._full: set[str] = set()  # who has got a full page
        self._on_its_way: set[int] = set()  # jobs on a page that job-list is to get
        self._meanwhile: set[str] | None = None  # events of jobs since a backup has begun
        self._is_copied = False  # whether a backup has all that is stored

    def observe(self, record: Record) -> None:
        """Note which situations the next record of the trace shows."""
        kind, message = record.kind, record.message
        if kind == _SEND and message is not None:
            if type(message) is Request:
                if message.topic in topics.PAGES:
                    self._asked_for_page(record.party, message)
                elif message.topic in topics.BACKUPS:
                    self._meanwhile = set()
            elif type(message) is Response:
                self._answered(message)
        elif kind == _RECV and record.party == topics.JOB_LIST:
            self._taken_by_job_list(message)
        elif kind == _EVENT and record.data is not None:
            self._logged(record.data["id"], record.data["name"], record.data["context"])
        elif kind == _FAULT and record.data is not None and "tool" in record.data:
            self._killed_for(record.data["tool"])
        elif kind == _MODULE and record.data is not None:
            self._changed(record.data)

    def _killed_for(self, tool: str) -> None:
        self.occurred.add(RECOVERED + tool)
        if self._meanwhile is not None:
            self.occurred.add(BACKUP_CUT)
        if self._is_copied and tool == "restore":
            self.occurred.add(BACKUP_RESTORED)
        self._meanwhile, self._is_copied = None, False

    def _backed_up(self, *, is_complete: bool) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        self._is_copied = is_complete
        if is_complete and meanwhile is not None and {JobEvent.START, JobEvent.FINISH} <= meanwhile:
            self.occurred.add(BACKED_UP)

    def _asked_for_page(self, party: str, request: Request) -> None:
        """A page is a second one if the same party has got a full one before."""
        self._limits[party, request.matchtag] = _payload(request).get("limit")
        if party in self._full:
            self.occurred.add(SECOND_PAGE)

    def _got_page(self, party: str, response: Response) -> None:
        limit = self._limits.pop((party, response.matchtag), None)
        keys = _payload(response).get("keys", ())
        if len(keys) == limit:
            self._full.add(party)
        if party == topics.JOB_LIST:
            self._on_its_way = set(map(jobid_in, keys))

    def _taken_by_job_list(self, message: object) -> None:
        if type(message) is Response and message.topic in topics.PAGES:
            self._on_its_way.clear()
        if type(message) is not Event or message.topic != topics.JOB_PURGE_EVENT:
            return
        if self._on_its_way.intersection(_payload(message).get("jobs", ())):
            self.occurred.add(PURGE_BEFORE_PAGE)

    def _answered(self, response: Response) -> None:
        if response.topic in topics.PAGES and response.routes:
            self._got_page(response.routes[0], response)
        elif response.topic in topics.BACKUPS:
            self._backed_up(is_complete=not response.errnum)
        elif response.topic in topics.COMMITS and not response.errnum:
            self._is_copied = False
        if response.errnum or response.topic not in (topics.JOB_HISTORY, topics.JOB_PURGE):
            return
        self._read.append(response.topic)
        if response.topic == topics.JOB_HISTORY:
            self.occurred.add(HISTORY)
            if topics.JOB_PURGE in self._read[:-1] and self._read[0] == topics.JOB_HISTORY:
                self.occurred.add(HISTORY_AFTER_PURGE)

    def _logged(self, jobid: int, name: str, context: Any) -> None:
        if self._meanwhile is not None:
            self._meanwhile.add(name)
        if name == JobEvent.JOBSPEC_UPDATE and QUEUE_KEY in context:
            self._moves[jobid] += 1
            self.occurred.add(MOVE if self._moves[jobid] == 1 else MOVE_AGAIN)
        elif name == JobEvent.EXCEPTION and context["type"] == "alloc":
            self._never_fit.add(jobid)
            if len(self._never_fit) > 1:
                self.occurred.add(NEVER_FIT)
        elif name == JobEvent.URGENCY and context["urgency"]:
            self._released.append(jobid)
        elif name == JobEvent.ALLOC and jobid in self._released:
            if any(other < jobid for other in self._released):
                self.occurred.add(RELEASED)
            self._released.remove(jobid)
        if name in _STATES:
            self._states[jobid] = _STATES[name]

    def _changed(self, data: dict[str, Any]) -> None:
        if data["module"] == topics.JOB_MANAGER and data["what"] == "started":
            active = {state for state in self._states.values() if state != JobState.INACTIVE}
            self.occurred.update(RELOADED + state.name for state in active)


def _payload(message: Request | Response | Event) -> dict[str, Any]:
    return message.payload if isinstance(message.payload, dict) else {}


_RECV: Final[str] = Kind.RECV.value
_SEND: Final[str] = Kind.SEND.value
_EVENT: Final[str] = Kind.EVENT.value
_FAULT: Final[str] = Kind.FAULT.value
_MODULE: Final[str] = Kind.MODULE.value
_STATES: Final[dict[str, JobState]] = {
    JobEvent.SUBMIT: JobState.NEW,
    JobEvent.VALIDATE: JobState.DEPEND,
    JobEvent.DEPEND: JobState.PRIORITY,
    JobEvent.PRIORITY: JobState.SCHED,
    JobEvent.ALLOC: JobState.RUN,
    JobEvent.FINISH: JobState.CLEANUP,
    JobEvent.CLEAN: JobState.INACTIVE,
}
"""The states to which events bring a job, nearly: an exception may bring it elsewhere."""
