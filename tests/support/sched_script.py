"""A scheduler core, and those it talks to: the resource service, the job manager, the KVS."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flux_trio.config import SchedConfig
from flux_trio.cores.sched.core import SchedCore
from flux_trio.cores.turns import Exit, Log
from flux_trio.editions import CLASSIC, Edition
from flux_trio.editions.rfc28 import Grown
from flux_trio.formats import Idset, ResourceSet, job_key
from flux_trio.messages import Errno, Request, Response, service_of, topics
from flux_trio.trace.kvs import operations_of
from tests.support.asking import asked

MANAGER = "job-manager"
START = 1000.0


def jobspec(
    count: int = 1, *, nnodes: int | None = None, duration: float = 0.0, **system: Any
) -> dict[str, Any]:
    """`count` slots of one core each, of all or of each node; `system` are further attributes."""
    slot = {"type": "slot", "count": count, "label": "task", "with": [{"type": "core", "count": 1}]}
    top = slot if nnodes is None else {"type": "node", "count": nnodes, "with": [slot]}
    return {
        "version": 1,
        "resources": [top],
        "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": duration, **system}},
    }


def alloc(jobid: int, spec: dict[str, Any] | None = None, **more: Any) -> Request:
    """A sched.alloc request of the job manager."""
    payload = {"id": jobid, "priority": 16, "userid": 1000, "jobspec": spec or jobspec(), **more}
    return asked(topics.SCHED_ALLOC, payload, by=MANAGER, tag=0)


def tell(method: str, **payload: Any) -> Request:
    """Another request of the job manager that answers by id, or not at all."""
    return asked(f"sched.{method}", payload, by=MANAGER, tag=0)


class SchedScript:
    """Feeds a core; KVS requests are answered at once unless `kvs_waits`."""

    def __init__(
        self,
        policy: str = "fifo",
        *,
        edition: Edition = CLASSIC,
        parents: Mapping[str, str] | None = None,
        queues: Mapping[str, str] | None = None,
        **config: Any,
    ) -> None:
        self.edition = edition
        settings = SchedConfig(policy=policy, **config)
        self.core = SchedCore(settings, edition, queues, parents)
        self.now = START
        self.kvs: dict[str, str] = {}
        self.kvs_waits = False
        self.unanswered: list[Request] = []  # to the KVS
        self.commits: list[list[list[str]]] = []
        self.started: list[Any] = self.core.start(self.now)

    def turn(self, *inputs: Any) -> list[Any]:
        """What the core does about `inputs` and the answers of the KVS; the latter are left out."""
        done = []
        waiting = list(inputs)
        while waiting:
            actions = self.core.turn(self.now, waiting)
            asked_kvs = [
                a
                for a in actions
                if isinstance(a, Request) and service_of(a.topic) in topics.KVS_SERVICES
            ]
            done += [action for action in actions if action not in asked_kvs]
            self.unanswered += asked_kvs
            waiting = [] if self.kvs_waits else self.take_kvs_answers()
        return done

    def take_kvs_answers(self) -> list[Response]:
        """What the KVS says to all that it was asked."""
        asked_kvs, self.unanswered = self.unanswered, []
        return [self._kvs(request) for request in asked_kvs]

    def _kvs(self, request: Request) -> Response:
        assert isinstance(request.payload, dict)
        if request.topic in topics.LOOKUPS:
            return answer(request, {"values": [self.kvs.get(k) for k in request.payload["keys"]]})
        ops = [[op, *filter(None, rest)] for op, *rest in operations_of(request.payload)]
        self.commits.append(ops)
        for op, key, *text in ops:
            if op == "put":
                self.kvs[key] = text[0]
            else:
                self.kvs.pop(key, None)
        return answer(request, {})

    # The conversation at the start

    def acquired(self, **payload: Any) -> list[Any]:
        """One response to resource.acquire."""
        return self.turn(answer(self.started[0], payload))

    def grow(self, resources: ResourceSet) -> list[Any]:
        """`resources` come, everything online."""
        grown = Grown(resources, resources.ranks, Idset())
        return self.turn(answer(self.started[0], self.edition.changes.write([grown])))

    def attach(self, resources: ResourceSet, **running: ResourceSet) -> list[Any]:
        """Up to the answer to ready; `running` is R by "jN". What the core did about that."""
        hello = only(self.grow(resources))
        ready = only(self.turn(*self.hello_answers(hello, running)))
        return self.turn(answer(ready, {"count": 0}))

    def hello_answers(self, hello: Request, running: dict[str, ResourceSet]) -> list[Response]:
        """All answers to hello; their R is in the KVS."""
        told = []
        for name, resources in running.items():
            jobid = int(name.removeprefix("j"))
            self.kvs[job_key(jobid, "R")] = json.dumps(resources.to_json())
            facts = {"id": jobid, "priority": 16, "userid": 1000, "t_submit": 1.0}
            told.append(answer(hello, facts))
        return [*told, answer(hello, errnum=Errno.ENODATA)]

    def r(self, jobid: int) -> ResourceSet:
        """R as the job has it."""
        assert job_key(jobid, "R") in self.kvs, f"job {jobid} was granted nothing"
        return ResourceSet.parse(self.kvs[job_key(jobid, "R")].encode())


def answer(request: Request, payload: Any = None, errnum: int = 0) -> Response:
    """A response to a request of the core's."""
    return Response(request.topic, payload, errnum, request.matchtag, request.flags)


def sent(actions: list[Any]) -> list[tuple[str, Any]]:
    """Topic and payload of every message."""
    return [(a.topic, a.payload) for a in actions if isinstance(a, (Request, Response))]


def answers(actions: list[Any]) -> list[Any]:
    """The payloads of sched.alloc responses, each checked for what all of them must be."""
    found = [a for a in actions if isinstance(a, Response) and a.topic == topics.SCHED_ALLOC]
    for response in found:
        assert response.errnum == 0, "27.impl.10"
        assert response.matchtag == 0, "27.impl.1"
        assert response.routes == (MANAGER,)
    payloads: list[Any] = [response.payload for response in found]
    assert all(isinstance(payload.get("id"), int) for payload in payloads), "27.impl.5"
    return payloads


def leaves(actions: list[Any]) -> bool:
    """Whether it was logged and the service leaves."""
    return [type(action) for action in actions] == [Log, Exit]


def only(actions: list[Any]) -> Any:
    """The one action that there is."""
    assert len(actions) == 1, f"expected one action, got {actions}"
    return actions[0]


def success(jobid: int, summary: str, **outdated: None) -> dict[str, Any]:
    """A SUCCESS response."""
    keys = {**outdated, "resource_summary": summary}
    return {"id": jobid, "type": 0, "annotations": {"sched": keys}}
