"""What Flux's own programs may ask here: the keys of each request, and what is left out.

A service ignores a key that it does not know, as flux-core's do, so a client of a newer Flux can
come in. The native door notes such a key in the log, once: what it was to change stays as it was.
The table is made from what the services decode requests with; the comment behind each field says
what the key does. The page *What each key does* shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from flux_trio.broker import (
    configuration,
    dmesg,
    door_topics,
    module_methods,
    native_services,
    services,
    tracing,
)
from flux_trio.broker.administration import WriteLog
from flux_trio.editions import (
    common,
    exec_requests,
    flux,
    flux_kvs,
    housekeeping,
    job_list,
    job_requests,
    journal,
    plugin_requests,
    rfc33,
    submission,
)
from flux_trio.messages import Level, Request, topics
from flux_trio.messages.topics import STATS_METHOD


class NoKeys(msgspec.Struct):
    """A request that has no keys."""


class AnyKeys(msgspec.Struct):
    """A request whose keys are its content, such as a whole configuration."""


PARTY: Final = "broker"
SHELL: Final = "USERID-shell-JOBID"
MODULE: Final = "MODULE"

ASKED: Final[Mapping[str, type[msgspec.Struct]]] = {
    "attr.get": native_services.Named,
    "attr.list": NoKeys,
    "attr.rm": native_services.Named,
    "attr.set": native_services.AttributeSet,
    "config.get": configuration.Get,
    "config.load": AnyKeys,
    "config.reload": NoKeys,
    "content.mmap-remove": native_services.Mapped,
    "event.publish": native_services.Publish,
    "event.subscribe": door_topics.Topic,
    "event.unsubscribe": door_topics.Topic,
    "groups.get": native_services.Named,
    topics.KVS_COMMIT: flux_kvs.Commit,
    topics.KVS_GETROOT: flux_kvs.GetRoot,
    topics.KVS_LOOKUP: flux_kvs.LookupAt,
    topics.KVS_LOOKUP_PLUS: flux_kvs.LookupAt,
    topics.KVS_NAMESPACE_CREATE: flux_kvs.NamespaceCreate,
    topics.KVS_NAMESPACE_LIST: NoKeys,
    topics.KVS_NAMESPACE_REMOVE: flux_kvs.Namespace,
    topics.KVS_WAIT_VERSION: flux_kvs.WaitVersion,
    topics.KVS_WATCH_LOOKUP: flux_kvs.LookupAt,
    topics.KVS_WATCH_CANCEL: common.Cancel,
    topics.INFO_LOOKUP: job_list.Lookup,
    topics.INFO_UPDATES: job_list.UpdateWatch,
    topics.INFO_UPDATES_CANCEL: common.Cancel,
    topics.INFO_WATCH: job_list.Watch,
    topics.INFO_WATCH_CANCEL: common.Cancel,
    topics.INGEST_SUBMIT: submission.Submit,
    topics.LIST_ATTRS: NoKeys,
    topics.LIST_ID: job_list.ListId,
    topics.LIST_LIST: job_list.List,
    topics.LIST_PAUSE: NoKeys,
    topics.LIST_STATS: NoKeys,
    topics.LIST_UNPAUSE: NoKeys,
    topics.JOB_ALLOC_QUERY: NoKeys,
    topics.JOB_DRAIN: rfc33.QueueWait,
    topics.JOB_GETATTR: job_requests.GetAttr,
    topics.JOB_GETINFO: NoKeys,
    topics.JOB_HISTORY: job_requests.HistoryGet,
    topics.JOB_HOUSEKEEPING_KILL: housekeeping.HousekeepingKill,
    topics.JOB_IDLE: rfc33.QueueWait,
    topics.JOB_JOBTAP: plugin_requests.Change,
    topics.JOB_JOBTAP_QUERY: plugin_requests.Query,
    topics.JOB_EVENTS: journal.FollowEvents,
    topics.JOB_EVENTS_CANCEL: common.Cancel,
    topics.JOB_KILL: job_requests.Kill,
    topics.JOB_KILLALL: job_requests.KillAll,
    topics.JOB_MANAGER_LIST: job_requests.ListJobs,
    topics.JOB_MEMO: job_requests.Memo,
    topics.JOB_PURGE: job_requests.Purge,
    topics.JOB_PURGE_ID: job_requests.PurgeId,
    topics.JOB_QUEUE_ENABLE: rfc33.QueueEnable,
    topics.JOB_QUEUE_LIST: NoKeys,
    topics.JOB_QUEUE_START: rfc33.QueueStart,
    topics.JOB_QUEUE_STATUS: rfc33.QueueStatusRequest,
    topics.JOB_RAISE: job_requests.Raise,
    topics.JOB_RAISEALL: job_requests.RaiseAll,
    topics.JOB_RESOURCE_STATUS: NoKeys,
    topics.JOB_UPDATE: job_requests.Update,
    topics.JOB_URGENCY: job_requests.Urgency,
    topics.JOB_WAIT: job_requests.Wait,
    topics.LOG_CANCEL: common.Cancel,
    topics.LOG_CLEAR: NoKeys,
    topics.LOG_DMESG: dmesg.DmesgRequest,
    topics.MODULE_LIST: NoKeys,
    topics.MODULE_LOAD: services.ModuleStart,
    topics.MODULE_REMOVE: services.ModuleName,
    topics.MODULE_TRACE: tracing.TraceRequest,
    topics.RESOURCE_DRAIN: flux.Drain,
    topics.RESOURCE_JOURNAL: NoKeys,
    topics.RESOURCE_JOURNAL_CANCEL: common.Cancel,
    topics.RESOURCE_RELOAD: flux.Reload,
    topics.RESOURCE_SCHED_STATUS: NoKeys,
    topics.RESOURCE_STATUS: NoKeys,
    topics.RESOURCE_UNDRAIN: flux.Drain,
    topics.SCHED_RESOURCES: NoKeys,
    "service.add": door_topics.Service,
    "service.remove": door_topics.Service,
    "state-machine.get": NoKeys,
    "state-machine.monitor": native_services.Monitor,
    "state-machine.wait": NoKeys,
    f"{SHELL}.proctable": NoKeys,
    f"{SHELL}.stdin": exec_requests.Stdin,
    f"{MODULE}.debug": module_methods.Debug,
    f"{MODULE}.ping": AnyKeys,
    f"{MODULE}.rusage": module_methods.Rusage,
    f"{MODULE}.stats-clear": NoKeys,
    f"{MODULE}.{STATS_METHOD}": NoKeys,
}
"""What a request is decoded with, by topic; MODULE stands for the name of any module."""


LEFT_OUT: Final[Mapping[str, str]] = {
    "broker.setenv": "the environment of the instance does not change while it runs",
    "broker.conf-builtin": "there are no compiled-in paths of flux-core",
    "content.flush": "the kvs is a database: there is no content store",
    "job-exec.critical-ranks": "every rank of a job is: it ends when one of them is lost",
    "job-manager.set-batch-timeout": "commits wait for nothing",
    "overlay.health": "one broker is the whole instance: there is no overlay network",
    "resource.topo-get": "there is no hwloc here: a broker in a job looks at the machine itself",
    "rexec.exec": "no processes are run outside of jobs: submit a job",
    "runat.push": "the command of an instance is its only program",
    "shutdown.start": "an instance ends with its command, or by SIGTERM",
    f"{SHELL}.terminus": "there are no pseudo terminals",
}
"""What programs of flux-core 0.88 ask and do not get, and why: it is answered with ENOSYS.

The rest of the services content, overlay and rexec is left out for the same reasons.
"""

NOTED_MAX: Final = 256
"""Keys that are noted in the log; further ones are not."""


def shape_of(topic: str) -> type[msgspec.Struct] | None:
    """Return what a request is decoded with; None if the table has no such topic."""
    return ASKED.get(topic) or ASKED.get(general(topic))


def general(topic: str) -> str:
    """Return `topic` with SHELL or MODULE in place of its service."""
    service, _, method = topic.partition(".")
    return f"{SHELL if '-shell-' in service else MODULE}.{method}"


def keys_of(shape: type[msgspec.Struct]) -> frozenset[str]:
    """Return the keys that a request may have."""
    return frozenset(shape.__struct_encode_fields__)


def left_out(topic: str) -> str | None:
    """Return why a request gets no more than ENOSYS; None if it is not left out."""
    if topic in LEFT_OUT:
        return LEFT_OUT[topic]
    service, _, method = topic.partition(".")
    return LEFT_OUT.get(f"{SHELL}.{method.partition('.')[0]}") if "-shell-" in service else None


class UnknownKeys:
    """Notes keys that nobody here knows, each once."""

    def __init__(self, write_log: WriteLog) -> None:
        self._write_log = write_log
        self._known = {
            topic: keys_of(shape) for topic, shape in ASKED.items() if shape is not AnyKeys
        }
        self._noted: set[tuple[str, str]] = set()

    def look_at(self, request: Request) -> None:
        """Write a line to the log for each key of `request` that is new and unknown."""
        payload = request.payload
        if not isinstance(payload, dict) or not payload:
            return
        topic = request.topic
        known = self._known.get(topic)
        if known is None:
            topic = general(topic)
            known = self._known.get(topic)
        if known is None or payload.keys() <= known:
            return
        for key in sorted(payload.keys() - known):
            if (topic, key) not in self._noted and len(self._noted) < NOTED_MAX:
                self._noted.add((topic, key))
                text = f"{request.topic}: ignored the key {key[:80]!r}, which is not known here"
                self._write_log(Level.INFO, PARTY, text)
