"""The owner of a world: submits the jobs of a plan at their times, and does the rest of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from flux_trio.config import DURATION_KEY, QUEUE_KEY
from flux_trio.cores.turns import SetTimer, TimerFired
from flux_trio.formats import Idset, Jobspec, format_fluid
from flux_trio.lab.plans.workload import JOB_ACTIONS, JobPlan, OwnerRequest, queue_name
from flux_trio.lab.world.clients import LATER, RETRY_S, Client, Subscribe
from flux_trio.lab.world.plugin_files import PluginFile
from flux_trio.messages import Errno, Flag, Request, Response, topics

PURGED_MAX: Final = 1000  # jobs of one purge: all that a world has
SINGLE: Final = "single"  # the name of the jobs of which one at a time goes on
EVERY_EVENT: Final = Subscribe("*")


class Owner(Client):
    """A client that submits the jobs of a plan and makes its requests, as the instance's owner.

    `ids` has the id of each job that was accepted, by the job's place in the plan. `plugins` are
    those that can be loaded again.
    """

    comes_back = True

    def __init__(
        self,
        jobs: tuple[JobPlan, ...],
        actions: tuple[OwnerRequest, ...],
        ids: dict[int, int],
        plugins: Sequence[PluginFile] = (),
        own: topics.StoreTopics = topics.KVS_OWN,
    ) -> None:
        self._own = own  # how the edition calls what only we have of the kvs
        self._plugins = plugins
        self._todo: dict[int, JobPlan | OwnerRequest] = dict(enumerate((*jobs, *actions)))
        self.ids = ids
        self.refused: dict[int, str] = {}  # jobs that were refused, by place
        self.waiting: dict[int, int] = {}  # matchtag of an open request → place
        self._behind: dict[int, list[int]] = {}  # requests about a job that has no id yet, by job
        self._eventlogs: dict[int, str] = {}  # what open streams of eventlogs have told, by place
        self.read: dict[int, str] = {}  # the eventlogs that were followed to their end, by job id
        self._has_subscribed = False
        self._matchtag = 0

    def start(self, now: float) -> list[Any]:
        """Return the timers for the jobs, and for the requests that have a time."""
        return [
            SetTimer(place, now + each.at)
            for place, each in self._todo.items()
            if isinstance(each, JobPlan) or each.when is None
        ]

    def turn(self, now: float, inputs: Sequence[Any]) -> list[Any]:
        """Return the requests that are due, and those that had to wait for the id of a job."""
        actions: list[Any] = []
        for each in inputs:
            match each:
                case TimerFired(key=int() as place):
                    actions += self._do(place)
                case Response():
                    actions += self._answered(now, each)
        return actions

    @property
    def unanswered(self) -> list[JobPlan | OwnerRequest]:
        """The jobs and requests of the plan that wait for an answer."""
        return [self._todo[place] for place in self.waiting.values()]

    def connection_lost(self) -> None:
        """Forget the requests that are open; whether a job was accepted is not known then."""
        for place in self.waiting.values():
            if isinstance(self._todo[place], JobPlan):
                self.refused[place] = "the connection was lost before the answer"
        self.waiting.clear()
        self._eventlogs.clear()

    def reconnected(self, now: float) -> list[Any]:  # noqa: ARG002 - the interface
        """Return a new subscription to events, if the owner had one."""
        return [EVERY_EVENT] if self._has_subscribed else []

    def _do(self, place: int) -> list[Any]:
        asked = self._todo[place]
        if isinstance(asked, JobPlan):
            return [self._request(place, topics.INGEST_SUBMIT, self.submission(asked))]
        if asked.what in JOB_ACTIONS and asked.job not in self.ids:
            if asked.job not in self.refused:
                self._behind.setdefault(asked.job, []).append(place)
            return []
        if asked.what == "subscribe":
            self._has_subscribed = True
            return [EVERY_EVENT]
        if asked.what == "reload-plugin":
            return [self._request(place, topics.JOB_JOBTAP, each) for each in self._change(asked)]
        flags = Flag.STREAMING if asked.what == "watch" else 0
        return [self._request(place, *_method(asked, self.ids.get(asked.job, 0), self._own), flags)]

    def _request(self, place: int, topic: str, payload: dict[str, Any], flags: int = 0) -> Request:
        self._matchtag += 1
        self.waiting[self._matchtag] = place
        return Request(topic, payload, self._matchtag, int(flags))

    def _change(self, asked: OwnerRequest) -> Iterator[dict[str, Any]]:
        """Yield the payload of the request that loads a plugin again, if there is such a plugin."""
        for file in self._plugins[asked.value : asked.value + 1]:
            name = Path(file.load).stem.replace("_", "-")
            yield {"remove": name, "load": file.load, "conf": file.conf}

    def submission(self, job: JobPlan) -> dict[str, Any]:
        """Return the payload of the request that submits a job."""
        jobid = None if job.after is None else self.ids.get(job.after)
        return {"jobspec": jobspec_of(job, after=jobid).to_json(), "urgency": job.urgency}

    def _answered(self, now: float, response: Response) -> list[Any]:
        if response.matchtag not in self.waiting:
            return []  # a service says more than it should
        if response.topic == topics.INFO_WATCH and self._is_told(response):
            return []
        place = self.waiting.pop(response.matchtag)
        if response.errnum in LATER:
            return [SetTimer(place, now + RETRY_S)]
        if isinstance(self._todo[place], JobPlan):
            payload = response.payload if isinstance(response.payload, dict) else {}
            if response.errnum:
                self.refused[place] = response.error_text
            elif type(payload.get("id")) is not int:
                self.refused[place] = "the answer has no job id"  # the service lies
            else:
                self.ids[place] = payload["id"]
                behind = self._behind.pop(place, [])
                return [action for each in behind for action in self._do(each)]
        return []

    def _is_told(self, response: Response) -> bool:
        """Take a line of an eventlog, or the end of the stream; return whether it goes on."""
        place = self.waiting[response.matchtag]
        payload = self._eventlogs.pop(place, "")
        if not response.errnum and isinstance(response.payload, dict):
            self._eventlogs[place] = f"{payload}{response.payload.get('event', '')}\n"
            return not response.ends_rpc  # without the flag of a stream it is the last one
        asked = self._todo[place]
        if response.errnum == Errno.ENODATA and isinstance(asked, OwnerRequest):
            self.read[self.ids[asked.job]] = payload
        return False


def jobspec_of(job: JobPlan, after: int | None = None) -> Jobspec:
    """Return the jobspec of a job of a plan, whose execution is simulated.

    It waits for the end of the job with the id `after`.
    """
    attributes: dict[str, Any] = {"system.exec.test.run_duration": job.run}
    waits = []
    if job.is_single:
        waits.append({"scheme": "singleton", "value": ""})
        attributes["system.job.name"] = SINGLE
    if after is not None:
        waits.append({"scheme": "afterany", "value": format_fluid(after, "f58")})
    if waits:
        attributes["system.dependencies"] = waits
    if job.ranks:
        attributes["system.constraints"] = {"ranks": [str(Idset.of(job.ranks))]}
    if job.queue is not None:
        attributes["system.queue"] = queue_name(job.queue)
    return Jobspec.from_command(
        ["true"],
        ntasks=None if job.nnodes else job.ntasks,
        nnodes=job.nnodes or None,
        duration=job.limit,
        attributes=attributes,
    )


def _method(asked: OwnerRequest, jobid: int, own: topics.StoreTopics) -> tuple[str, dict[str, Any]]:
    """Return topic and payload of a request."""
    if asked.what in JOB_ACTIONS:
        topic, values = _of_job(asked)
        return topic, {"id": jobid, **values}
    match asked.what:
        case "include":
            return topics.RESOURCE_EXCLUDE, {"targets": ""}
        case "history":
            return topics.JOB_HISTORY, {"slice": "[:]"}
        case "backup":
            return own.backup, {"path": "backup"}
        case "purge":
            return topics.JOB_PURGE, {"num_limit": 0, "batch": PURGED_MAX, "force": True}
        case "queue-drain" | "queue-idle":
            topic = topics.JOB_DRAIN if asked.what == "queue-drain" else topics.JOB_IDLE
            return topic, {} if asked.queue is None else {"name": queue_name(asked.queue)}
        case "queue-stop" | "queue-start":
            is_start = asked.what == "queue-start"
            return topics.JOB_QUEUE_START, {"start": is_start, **_queue(asked)}
        case "queue-disable":
            return topics.JOB_QUEUE_ENABLE, {"enable": False, "reason": "closed", **_queue(asked)}
        case "queue-enable":
            return topics.JOB_QUEUE_ENABLE, {"enable": True, **_queue(asked)}
        case _:
            return _OF_NODES[asked.what], {"targets": str(asked.rank)}


def _of_job(asked: OwnerRequest) -> tuple[str, dict[str, Any]]:
    """Return the topic of a request about a job, and what it says beside the id."""
    match asked.what:
        case "cancel":
            return topics.JOB_RAISE, {"severity": 0, "type": "cancel"}
        case "urgency":
            return topics.JOB_URGENCY, {"urgency": asked.value}
        case "duration":
            return topics.JOB_UPDATE, {"updates": {DURATION_KEY: asked.seconds}}
        case "move":
            return topics.JOB_UPDATE, {"updates": {QUEUE_KEY: queue_name(asked.queue or 0)}}
        case _:
            return topics.INFO_WATCH, {}


_OF_NODES: Final[dict[str, str]] = {
    "drain": topics.RESOURCE_DRAIN,
    "undrain": topics.RESOURCE_UNDRAIN,
    "down": topics.RESOURCE_DOWN,
    "up": topics.RESOURCE_UP,
    "exclude": topics.RESOURCE_EXCLUDE,
}


def _queue(asked: OwnerRequest) -> dict[str, Any]:
    """Return which queue a request is about."""
    return {"all": True} if asked.queue is None else {"name": queue_name(asked.queue)}
