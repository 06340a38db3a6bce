"""One request, or several, of each topic there is: what `tests/instance/test_roles.py` asks.

The payloads are right, so that what is refused is refused for who asks; but those of RFC 27, 28 and
32 are empty, since only the other service could say what is right: EPROTO means that the door let
it through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import flux_trio.editions
from flux_trio.formats import Jobspec
from flux_trio.messages import USERID_UNKNOWN, topics
from flux_trio.protocols import ACTIVE, JobFlag
from tests.support.kvs_words import commit_of, lookup_of

_RUN: Final = {"system.exec.test.run_duration": 3600.0}
JOB_SPEC: Final = Jobspec.from_command(["true"], attributes=_RUN).to_json()
LONG_SPEC: Final = Jobspec.from_command(["true"], ntasks=16, attributes=_RUN).to_json()
"""More than is free: it waits behind the other."""

ALLOC_BYPASS_R: Final = "system.alloc-bypass.R"


@dataclass(frozen=True)
class RequestPayload:
    """The payload of a request, given a running and a pending job's id and the asker's userid."""

    payload: Callable[[int, int, int], Any]
    streaming: bool = False
    silent: bool = False  # as its RFC has it: no matchtag, and no answer


def plain(payload: Any = None, *, streaming: bool = False) -> dict[str, RequestPayload]:
    return {"": RequestPayload(lambda *_: payload, streaming)}


def of_job(**more: Any) -> dict[str, RequestPayload]:
    """About the running job."""
    return {"": RequestPayload(lambda running, *_: {"id": running, **more})}


def submitted(
    urgency: int = 16, flags: int = 0, attributes: dict[str, Any] = _RUN
) -> RequestPayload:
    spec = Jobspec.from_command(["true"], attributes=attributes).to_json()
    numbers = flags * flux_trio.editions.CLASSIC.first_flag  # those of a test's default edition
    return RequestPayload(lambda *_: {"jobspec": spec, "urgency": urgency, "flags": numbers})


def farewell(service: str) -> dict[str, dict[str, RequestPayload]]:
    return {topics.disconnect_of(service): {"": RequestPayload(lambda *_: None)}}


def updated(**updates: Any) -> dict[str, Any]:
    return {f"attributes.system.{key}": value for key, value in updates.items()}


_R: Final = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0", "children": {"core": "0"}}],
        "nodelist": ["node0"],
        "starttime": 0,
        "expiration": 0,
    },
}
_CANCEL: Final = {"severity": 0, "type": "cancel"}
_ALL: Final = {**_CANCEL, "states": ACTIVE, "dry_run": True}

ASKED: Final[dict[str, dict[str, RequestPayload]]] = {
    # ingest
    topics.INGEST_SUBMIT: {
        "": submitted(),
        "urgency 17": submitted(urgency=17),
        "the flag waitable": submitted(flags=JobFlag.WAITABLE),
        "the flag novalidate": submitted(flags=JobFlag.NOVALIDATE),
        "alloc-bypass": submitted(attributes={**_RUN, ALLOC_BYPASS_R: _R}),
    },
    # the job manager, for users
    topics.JOB_RAISE: {"": RequestPayload(lambda running, *_: {"id": running, **_CANCEL})},
    topics.JOB_RAISEALL: {
        "one's own": RequestPayload(lambda _r, _p, me: {**_ALL, "userid": me}),
        "everybody's": RequestPayload(lambda *_: {**_ALL, "userid": USERID_UNKNOWN}),
    },
    topics.JOB_KILL: of_job(signum=15),
    topics.JOB_KILLALL: {
        "one's own": RequestPayload(
            lambda _r, _p, me: {"userid": me, "signum": 15, "dry_run": True}
        ),
        "everybody's": RequestPayload(
            lambda *_: {"userid": USERID_UNKNOWN, "signum": 15, "dry_run": True}
        ),
    },
    topics.JOB_URGENCY: {
        "8": RequestPayload(lambda _r, pending, _m: {"id": pending, "urgency": 8}),
        "17": RequestPayload(lambda _r, pending, _m: {"id": pending, "urgency": 17}),
    },
    topics.JOB_UPDATE: {
        "a pending job": RequestPayload(
            lambda _r, pending, _m: {"id": pending, "updates": updated(duration=60)}
        ),
        "a running job": RequestPayload(
            lambda running, *_: {"id": running, "updates": updated(duration=60)}
        ),
    },
    topics.JOB_MEMO: of_job(memo={"note": "x"}),
    topics.JOB_POST_EVENT: of_job(name="test"),
    topics.JOB_GETATTR: of_job(attrs=["jobspec"]),
    topics.JOB_MANAGER_LIST: plain({}),
    topics.JOB_EXPLAIN: of_job(),
    topics.EXEC_SERVICE: plain(),
    topics.EXEC_SETTLED: plain(),
    topics.JOB_WAIT: of_job(),
    topics.JOB_PURGE: plain({"num_limit": 1000}),
    topics.JOB_PURGE_ID: plain({"id": 1}),
    topics.JOB_HISTORY: plain({"slice": "[:]"}),
    topics.JOB_DRAIN: plain({}),
    topics.JOB_IDLE: plain({}),
    topics.JOB_ALLOC_QUERY: plain(),
    topics.JOB_QUEUE_LIST: plain({}),
    topics.JOB_QUEUE_STATUS: plain({}),
    topics.JOB_QUEUE_ENABLE: plain({"enable": True, "all": True}),
    topics.JOB_QUEUE_START: plain({"start": True, "all": True}),
    topics.JOB_RESOURCE_STATUS: plain(),
    topics.JOB_STATS: plain(),
    topics.stats_clear_of(topics.JOB_MANAGER): plain(),
    topics.JOB_JOURNAL: plain({}, streaming=True),
    topics.JOB_EVENTS: plain({}, streaming=True),
    topics.JOB_EVENTS_CANCEL: plain({"matchtag": 5}),
    topics.JOB_JOBTAP: plain({}),
    topics.JOB_JOBTAP_LIST: plain({}),
    topics.JOB_JOBTAP_QUERY: plain({"name": ".priority-default"}),
    # the job manager, for other services
    topics.JOB_SUBMIT: plain({"jobs": []}),
    topics.JOB_SUBMIT_ROOM: plain(
        {"userid": 1, "jobspecs": [{"size": 1, "stored": 1, "costs": {}}]}
    ),
    topics.JOB_HINDRANCE: plain({"reason": "the disk is full"}),
    topics.JOB_STORED: plain({"id": 1, "nbytes": 1}),
    topics.JOB_STORE_ROOM: plain({"id": 1, "nbytes": 1}),
    topics.JOB_GETINFO: plain(),
    topics.JOB_HOUSEKEEPING_KILL: plain({"signum": 15}),
    topics.config_reload_of(topics.JOB_INGEST): plain({"config": {}}),
    topics.SCHED_HELLO: plain({}),
    topics.SCHED_READY: plain({}),
    topics.EXEC_HELLO: plain({}),
    topics.config_reload_of(topics.JOB_MANAGER): plain({"config": {}}),
    # scheduler and execution service
    topics.SCHED_ALLOC: plain({}),
    topics.SCHED_FREE: plain({}),
    topics.SCHED_EXPIRATION: plain({}),
    topics.SCHED_EXPLAIN: of_job(),
    topics.SCHED_RESOURCES: plain(),
    topics.SCHED_CANCEL: {"": RequestPayload(lambda *_: {}, silent=True)},
    topics.SCHED_PRIORITIZE: {"": RequestPayload(lambda *_: {}, silent=True)},
    topics.stats_of(topics.SCHED): plain(),
    topics.stats_clear_of(topics.SCHED): plain(),
    f"{topics.JOB_EXEC}.{topics.START_METHOD}": {"": RequestPayload(lambda *_: {}, silent=True)},
    topics.EXEC_COPY: of_job(),
    topics.EXEC_INPUT: of_job(data="eA==", eof=True),
    topics.EXEC_KILL: of_job(signum=15),
    topics.EXEC_EXPIRATION: of_job(expiration=0.0),
    topics.EXEC_OVERRIDE: {
        "": RequestPayload(lambda running, *_: {"jobid": running, "event": "start"})
    },
    topics.stats_of(topics.JOB_EXEC): plain(),
    topics.stats_clear_of(topics.JOB_EXEC): plain(),
    # resources
    topics.RESOURCE_ACQUIRE: plain({}),
    topics.RESOURCE_RELEASE: plain({}),
    topics.RESOURCE_STATUS: plain(),
    topics.RESOURCE_DRAIN: plain({"targets": "3", "reason": "x"}),
    topics.RESOURCE_UNDRAIN: plain({"targets": "3"}),
    topics.RESOURCE_DOWN: plain({"targets": "3", "reason": "x"}),
    topics.RESOURCE_UP: plain({"targets": "3"}),
    topics.RESOURCE_EXCLUDE: plain({"targets": "3"}),
    topics.RESOURCE_EXPIRATION: plain({"expiration": 0}),
    topics.stats_of(topics.RESOURCE): plain(),
    topics.stats_clear_of(topics.RESOURCE): plain(),
    topics.RESOURCE_SCHED_STATUS: plain(),
    topics.RESOURCE_RELOAD: plain({"path": "/nosuch"}),
    topics.RESOURCE_WAITUP: plain({"up": 1}),
    topics.RESOURCE_JOURNAL: plain({}, streaming=True),
    topics.RESOURCE_JOURNAL_CANCEL: plain({"matchtag": 5}),
    # what is told of jobs
    topics.LIST_LIST: plain({}),
    topics.credit_of(topics.LIST_LIST): plain({"matchtag": 5, "credit": 1}),
    topics.LIST_CANCEL: plain({"matchtag": 5}),
    topics.LIST_ID: of_job(),
    topics.LIST_STATS: plain({}),
    topics.LIST_ATTRS: plain(),
    topics.LIST_PAUSE: plain(),
    topics.LIST_UNPAUSE: plain(),
    topics.stats_of(topics.JOB_LIST): plain(),
    topics.stats_of(topics.JOB_INFO): plain(),
    topics.stats_clear_of(topics.JOB_LIST): plain(),
    topics.config_reload_of(topics.JOB_LIST): plain({"config": {}}),
    topics.INFO_LOOKUP: {
        "eventlog": RequestPayload(lambda running, *_: {"id": running, "keys": ["eventlog"]}),
        "R": RequestPayload(lambda running, *_: {"id": running, "keys": ["R"]}),
        "jobspec": RequestPayload(lambda running, *_: {"id": running, "keys": ["jobspec"]}),
    },
    topics.INFO_WATCH: {"": RequestPayload(lambda running, *_: {"id": running}, streaming=True)},
    topics.credit_of(topics.INFO_WATCH): plain({"matchtag": 5, "credit": 1}),
    topics.INFO_WATCH_CANCEL: plain({"matchtag": 5}),
    topics.INFO_UPDATES: {
        "": RequestPayload(lambda running, *_: {"id": running, "key": "R"}, streaming=True)
    },
    topics.INFO_UPDATES_CANCEL: plain({"matchtag": 5}),
    # the key-value store
    topics.KVS_COMMIT: plain(commit_of(["put", "a", "1"])),
    topics.KVS_LOOKUP: plain(lookup_of("resource.eventlog")),
    topics.KVS_OWN.lookup_all: plain({"keys": ["a"]}),
    topics.KVS_OWN.dir: plain({"prefix": "job"}),
    topics.KVS_OWN.page: plain({"prefix": "job"}),
    topics.KVS_OWN.count_below: plain({"prefix": "job"}),
    topics.KVS_OWN.backup: plain({"path": "/dev/null"}),
    topics.KVS_OWN.watch: plain({"key": "a"}, streaming=True),
    topics.credit_of(topics.KVS_OWN.watch): plain({"matchtag": 5, "credit": 1}),
    topics.KVS_OWN.cancel: plain({"matchtag": 5}),
    topics.stats_of(topics.KVS): plain(),
    topics.stats_clear_of(topics.KVS): plain(),
    topics.stats_of(topics.JOB_INGEST): plain(),
    topics.stats_clear_of(topics.JOB_INGEST): plain(),
    topics.config_reload_of(topics.JOB_INGEST): plain({"config": {}}),
    # the instance
    topics.BROKER_INFO: plain(),
    topics.BROKER_SHUTDOWN: plain(),
    topics.BROKER_BACKUP: plain({"directory": "/dev/null"}),
    topics.BROKER_LOG: plain({"level": 6, "text": "x"}),
    topics.BROKER_NOTE: plain({"kind": "note", "data": {}}),
    topics.BROKER_TOKEN: plain({"userid": 2002, "name": "x"}),
    topics.BROKER_REVOKE: plain({"userid": 2002}),
    topics.BROKER_REGISTER: plain({"service": "mine"}),
    topics.BROKER_UNREGISTER: plain({"service": "mine"}),
    topics.BROKER_SUBSCRIBE: plain({"topic": "x"}),
    topics.BROKER_UNSUBSCRIBE: plain({"topic": "x"}),
    topics.stats_of(topics.BROKER): plain(),
    topics.CONFIG_GET: plain({}),
    topics.CONFIG_LOAD: plain({"config": {}}),
    topics.CONFIG_RELOAD: plain({}),
    topics.stats_of(topics.CONFIG): plain(),
    topics.LOG_DMESG: plain({}, streaming=True),
    topics.LOG_DMESG_CANCEL: plain({"matchtag": 5}),
    topics.LOG_CANCEL: plain({"matchtag": 5}),
    topics.LOG_APPEND: plain("<40>1 2026-11-22T00:52:54Z 0 logger 1 - - hello"),
    topics.LOG_CLEAR: plain({}),
    topics.stats_of(topics.LOG): plain(),
    topics.MODULE_LIST: plain(),
    topics.MODULE_LOAD: plain({"name": "sched"}),
    topics.MODULE_RELOAD: plain({"name": "job-list"}),
    topics.MODULE_REMOVE: plain({"name": "job-list"}),
    topics.MODULE_KILL: plain({"name": "job-list"}),
    topics.MODULE_TRACE: plain({}, streaming=True),
    topics.MODULE_TRACE_CANCEL: plain({"matchtag": 5}),
    # told by the broker when a peer is gone; from another it is about that peer alone
    **farewell(topics.JOB_INGEST),
    **farewell(topics.JOB_MANAGER),
    **farewell(topics.SCHED),
    **farewell(topics.JOB_EXEC),
    **farewell(topics.RESOURCE),
    **farewell(topics.JOB_LIST),
    **farewell(topics.JOB_INFO),
    **farewell(topics.KVS),
    **farewell(topics.BROKER),
    **farewell(topics.MODULE),
    **farewell(topics.LOG),
}
