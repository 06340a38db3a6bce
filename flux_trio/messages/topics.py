"""Wire names: every topic and service name of the instance, defined once.

RFC 27, 28 and 32 define some names; the others are flux-core's if flux-core has the method.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# Service names
JOB_INGEST: Final = "job-ingest"
JOB_MANAGER: Final = "job-manager"
JOB_LIST: Final = "job-list"
JOB_INFO: Final = "job-info"
JOB_EXEC: Final = "job-exec"
KVS: Final = "kvs"
KVS_WATCHES: Final = "kvs-watch"
STORE: Final = "store"
RESOURCE: Final = "resource"
SCHED: Final = "sched"
FEASIBILITY: Final = "feasibility"
BROKER: Final = "broker"
MODULE: Final = "module"
CONFIG: Final = "config"
LOG: Final = "log"

# The broker sends <service>.disconnect on behalf of a peer that is gone (RFC 6, Disconnection)
DISCONNECT: Final = "disconnect"

# A service's statistics: <service>.stats-get
STATS_METHOD: Final = "stats-get"

# The counts of a service begin at 0 again: <service>.stats-clear, flux-core's
STATS_CLEAR_METHOD: Final = "stats-clear"

# A new configuration, which the service accepts or refuses: <service>.config-reload
CONFIG_RELOAD_METHOD: Final = "config-reload"

# RFC 27
SCHED_HELLO: Final = "job-manager.sched-hello"
SCHED_READY: Final = "job-manager.sched-ready"
SCHED_ALLOC: Final = "sched.alloc"
SCHED_CANCEL: Final = "sched.cancel"
SCHED_PRIORITIZE: Final = "sched.prioritize"
SCHED_EXPIRATION: Final = "sched.expiration"
SCHED_FREE: Final = "sched.free"
FEASIBILITY_CHECK: Final = "feasibility.check"

# What is there, down and allocated, as the scheduler knows it: flux-core's
SCHED_RESOURCES: Final = "sched.resource-status"

# Why a job waits: our own; a scheduler need not have it
SCHED_EXPLAIN: Final = "sched.explain"
JOB_EXPLAIN: Final = "job-manager.explain"

# RFC 28
RESOURCE_ACQUIRE: Final = "resource.acquire"
RESOURCE_RELEASE: Final = "resource.release"

# RFC 32; the start topic is <service>.start
EXEC_HELLO: Final = "job-manager.exec-hello"
START_METHOD: Final = "start"

# How exec learns of cancels and new expirations (readings: How exec learns of cancels)
JOB_EXCEPTION_EVENT: Final = "job-exception"

# A stored value differs from the committed value: {key, text}
KVS_DAMAGED_EVENT: Final = "kvs-damaged"

# Finished jobs that have been purged: {jobs, times}
JOB_PURGE_EVENT: Final = "job-purge-inactive"

# A service name is served again: {service} (readings: Job manager gone)
SERVICE_BACK_EVENT: Final = "service-back"

# Who runs jobs, when a service other than job-exec has come or has left: {service, vacant}; the
# request has the same answer at any time (readings: Exec override at start)
EXEC_SERVICE_EVENT: Final = "exec-service"
EXEC_SERVICE: Final = "job-manager.exec-service"

# Job submission and control
INGEST_SUBMIT: Final = "job-ingest.submit"
JOB_SUBMIT: Final = "job-manager.submit"
JOB_SUBMIT_ROOM: Final = "job-manager.submit-room"
JOB_HINDRANCE: Final = "job-manager.hindrance"
JOB_STORED: Final = "job-manager.stored"
JOB_STORE_ROOM: Final = "job-manager.store-room"
JOB_GETINFO: Final = "job-manager.getinfo"
JOB_RAISE: Final = "job-manager.raise"
JOB_RAISEALL: Final = "job-manager.raiseall"
JOB_KILL: Final = "job-manager.kill"
JOB_KILLALL: Final = "job-manager.killall"
JOB_HOUSEKEEPING_KILL: Final = "job-manager.housekeeping-kill"
JOB_MEMO: Final = "job-manager.memo"
JOB_POST_EVENT: Final = "job-manager.post-event.post"
JOB_MANAGER_LIST: Final = "job-manager.list"
JOB_GETATTR: Final = "job-manager.getattr"
JOB_WAIT: Final = "job-manager.wait"
JOB_HISTORY: Final = "job-manager.history.get"
JOB_PURGE: Final = "job-manager.purge"
JOB_PURGE_ID: Final = "job-manager.purge-id"
JOB_UPDATE: Final = "job-manager.update"
JOB_URGENCY: Final = "job-manager.urgency"
JOB_DRAIN: Final = "job-manager.drain"
JOB_IDLE: Final = "job-manager.idle"
JOB_QUEUE_ENABLE: Final = "job-manager.queue-enable"
JOB_ALLOC_QUERY: Final = "job-manager.alloc-query"  # flux-core's
JOB_QUEUE_LIST: Final = "job-manager.queue-list"
JOB_QUEUE_START: Final = "job-manager.queue-start"
JOB_QUEUE_STATUS: Final = "job-manager.queue-status"
JOB_RESOURCE_STATUS: Final = "job-manager.resource-status"
JOB_JOURNAL: Final = "job-manager.journal"  # ours: whole turns, for services that follow jobs
JOB_EVENTS: Final = "job-manager.events-journal"  # flux-core's: one job's events a response
JOB_EVENTS_CANCEL: Final = "job-manager.events-journal-cancel"
JOB_JOBTAP: Final = "job-manager.jobtap"
JOB_JOBTAP_LIST: Final = "job-manager.jobtap-list"
JOB_JOBTAP_QUERY: Final = "job-manager.jobtap-query"
JOB_STATS: Final = f"{JOB_MANAGER}.{STATS_METHOD}"

# Job information
LIST_LIST: Final = "job-list.list"
LIST_CANCEL: Final = "job-list.list-cancel"
LIST_ID: Final = "job-list.list-id"
LIST_STATS: Final = "job-list.job-stats"
LIST_PAUSE: Final = "job-list.job-state-pause"
LIST_UNPAUSE: Final = "job-list.job-state-unpause"
LIST_ATTRS: Final = "job-list.list-attrs"  # flux-core's
INFO_LOOKUP: Final = "job-info.lookup"
INFO_WATCH: Final = "job-info.eventlog-watch"
INFO_WATCH_CANCEL: Final = "job-info.eventlog-watch-cancel"
INFO_UPDATES: Final = "job-info.update-watch"  # flux-core's
INFO_UPDATES_CANCEL: Final = "job-info.update-watch-cancel"

# Key-value store: flux-core's methods
KVS_COMMIT: Final = "kvs.commit"
KVS_LOOKUP: Final = "kvs.lookup"
KVS_LOOKUP_PLUS: Final = "kvs.lookup-plus"
KVS_GETROOT: Final = "kvs.getroot"
KVS_WAIT_VERSION: Final = "kvs.wait-version"
KVS_NAMESPACE_CREATE: Final = "kvs.namespace-create"
KVS_NAMESPACE_REMOVE: Final = "kvs.namespace-remove"
KVS_NAMESPACE_LIST: Final = "kvs.namespace-list"
KVS_WATCH_LOOKUP: Final = "kvs-watch.lookup"
KVS_WATCH_CANCEL: Final = "kvs-watch.cancel"


class StoreTopics(NamedTuple):
    """The methods of the kvs that only this project has; the service is the edition's."""

    commit: str
    lookup_all: str
    watch: str
    cancel: str
    dir: str
    page: str
    count_below: str
    backup: str


def store_topics(service: str) -> StoreTopics:
    names = ("commit", "lookup-all", "watch", "watch-cancel", "dir", "page", "count", "backup")
    return StoreTopics(*(f"{service}.{name}" for name in names))


KVS_OWN: Final = store_topics(KVS)
STORE_OWN: Final = store_topics(STORE)
COMMITS: Final = (KVS_COMMIT, STORE_OWN.commit)
LOOKUPS: Final = (KVS_LOOKUP, KVS_OWN.lookup_all, STORE_OWN.lookup_all)
BACKUPS: Final = (KVS_OWN.backup, STORE_OWN.backup)
KVS_SERVICES: Final = (KVS, KVS_WATCHES, STORE)
PAGES: Final = (KVS_OWN.page, STORE_OWN.page)
"""The methods by which the services of all editions write and read values."""

# Resource administration
RESOURCE_STATUS: Final = "resource.status"
RESOURCE_SCHED_STATUS: Final = "resource.sched-status"  # flux-core's, as the two below
RESOURCE_WAITUP: Final = "resource.monitor-waitup"
RESOURCE_JOURNAL: Final = "resource.journal"
RESOURCE_JOURNAL_CANCEL: Final = "resource.journal-cancel"
RESOURCE_RELOAD: Final = "resource.reload"
RESOURCE_DRAIN: Final = "resource.drain"
RESOURCE_UNDRAIN: Final = "resource.undrain"
RESOURCE_EXCLUDE: Final = "resource.exclude"
RESOURCE_EXPIRATION: Final = "resource.expiration-update"
# The instance's end has changed: {expiration}; the scheduler learns it from a grow response
RESOURCE_EXPIRATION_EVENT: Final = "resource-expiration"
RESOURCE_DOWN: Final = "resource.targets-down"
RESOURCE_UP: Final = "resource.targets-up"
# Targets went down {targets, reason} or came up again {targets}. The execution service learns it
# from these events; drains are not among them
RESOURCE_OFFLINE_EVENT: Final = "resource-offline"
RESOURCE_ONLINE_EVENT: Final = "resource-online"

# Execution: output and input of a running job
EXEC_INPUT: Final = "job-exec.input"
EXEC_KILL: Final = "job-exec.kill"
EXEC_COPY: Final = "job-exec.copy"
# flux-core's job manager tells by it of a job's new expiration
EXEC_OVERRIDE: Final = "job-exec.override"  # flux-core's
EXEC_EXPIRATION: Final = "job-exec.expiration"
# Answered when it is settled whether job-exec or another service runs jobs, or why nobody can
EXEC_SETTLED: Final = "job-exec.settled"

# The broker's log
LOG_DMESG: Final = "log.dmesg"
LOG_DMESG_CANCEL: Final = "log.dmesg-cancel"
LOG_CANCEL: Final = "log.cancel"  # the same; flux-core's
LOG_APPEND: Final = "log.append"  # flux-core's; the payload is a line of text
LOG_CLEAR: Final = "log.clear"

# Broker
BROKER_INFO: Final = "broker.info"
BROKER_SHUTDOWN: Final = "broker.shutdown"
BROKER_BACKUP: Final = "broker.backup"
BROKER_LOG: Final = "broker.log"
BROKER_NOTE: Final = "broker.note"
BROKER_TOKEN: Final = "broker.token"
BROKER_REVOKE: Final = "broker.token-revoke"
BROKER_REGISTER: Final = "broker.register"
BROKER_UNREGISTER: Final = "broker.unregister"
BROKER_SUBSCRIBE: Final = "broker.subscribe"
BROKER_UNSUBSCRIBE: Final = "broker.unsubscribe"
CONFIG_GET: Final = "config.get"
CONFIG_LOAD: Final = "config.load"
CONFIG_RELOAD: Final = "config.reload"
MODULE_LIST: Final = "module.list"
MODULE_LOAD: Final = "module.load"
MODULE_RELOAD: Final = "module.reload"
MODULE_REMOVE: Final = "module.remove"
MODULE_KILL: Final = "module.kill"
MODULE_TRACE: Final = "module.trace"
MODULE_TRACE_CANCEL: Final = "module.trace-cancel"


STREAMS: Final = frozenset(
    {
        *(SCHED_HELLO, RESOURCE_ACQUIRE, JOB_JOURNAL, JOB_EVENTS, LIST_LIST, INFO_WATCH),
        *(KVS_OWN.watch, STORE_OWN.watch, KVS_WATCH_LOOKUP),
        *(LOG_DMESG, MODULE_TRACE, LIST_STATS, CONFIG_GET, INFO_UPDATES),
        RESOURCE_JOURNAL,
        # of flux-core alone
        "groups.get",
        *("overlay.health", "overlay.monitor", "overlay.trace", "state-machine.monitor"),
        *("bootstrap.whois", "sdbus.subscribe", "shutdown.start"),
    }
)
"""The methods whose requests may be streams (RFC 6, Streaming), of flux-trio and of flux-core; the
start of an execution service, which has any name, is one more."""


def disconnect_of(service: str) -> str:
    """Return the topic that tells `service` that a peer is gone (RFC 6, Disconnection)."""
    return f"{service}.{DISCONNECT}"


def credit_of(topic: str) -> str:
    """Return the topic by which a stream's reader grants responses (docs/reference/wire.md)."""
    return f"{topic}-credit"


def served_by(service: str, topic: str) -> str:
    """Return the topic of the same method of another service."""
    return f"{service}.{topic.partition('.')[2]}"


def stats_of(service: str) -> str:
    return f"{service}.{STATS_METHOD}"


def stats_clear_of(service: str) -> str:
    return f"{service}.{STATS_CLEAR_METHOD}"


def config_reload_of(service: str) -> str:
    return f"{service}.{CONFIG_RELOAD_METHOD}"


JOB_MANAGER_DISCONNECT: Final = disconnect_of(JOB_MANAGER)
FIRST_REQUESTS: Final = frozenset({RESOURCE_ACQUIRE, SCHED_HELLO, EXEC_HELLO})
"""By one of these a scheduler or execution service begins."""
