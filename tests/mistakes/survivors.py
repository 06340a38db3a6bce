"""What would find the mistakes that are seldom or never found, for the page of results."""

from __future__ import annotations

from typing import Final

WOULD_FIND: Final[dict[str, str]] = {
    "conservative-overdue-place": (
        "more worlds in which jobs outlive their limits while larger ones wait"
    ),
    "early-callers-do-not-hear-of-a-service": (
        "more seeds: a service has to come back that no party called before but the one that waits "
        "for it; the event goes to all who subscribe to it, and most services have other callers"
    ),
    "easy-overdue-reservation": (
        "more seeds: `idle` finds it if several jobs outlive their limits while a larger one waits"
    ),
    "exec-forgets-untold-jobs": "more seeds: `known` finds it if a job ends without a job manager",
    "exec-released-stream-is-not-reopened": (
        "a client that reads the output of a job while the job manager ends between the final "
        "release and its commit; no client of a world reads output"
    ),
    "inactive-job-stays-entered": (
        "a look at the plugin host between the end of a job and its removal, which come in one "
        "turn: nothing is left of it later"
    ),
    "job-list-hears-of-no-purge": (
        "a purge whose job manager goes on: in a world it meets the end of the job manager, after "
        "which job-list reads anew what is stored"
    ),
    "kvs-turns-held-commits-round": (
        "more seeds: several commits have to be in the transaction that finds the disk full; then "
        "`ordered` finds it"
    ),
    "old-grant-is-kept-after-an-update": (
        "an update of something else that the scheduler goes by, such as the queue; a new duration "
        "is asked for when the job has its resources"
    ),
    "multifactor-forgets-dependencies-of-before": (
        "a plugin that is loaded while jobs wait for a limit; after a restart the limit is reached "
        "again before they are asked about, since all jobs have been counted"
    ),
    "priority-default-keeps-the-first-priority": (
        "a property that compares priorities with urgencies where no other plugin sets them: what "
        "the job manager does itself, to hold a job or to expedite it, goes on"
    ),
    "read-back-job-is-refused": (
        "more seeds: the job manager has to read a job back after job-ingest has stored it and "
        "before it submits it"
    ),
    "rearmed-timer-keeps-its-old-time": (
        "a core that moves a timer to a later time and relies on it; the cores of this program set "
        "a timer again only when it has fired, or for a retry that may come early"
    ),
    "reloaded-module-gets-answers-of-the-one-before": (
        "more seeds: `32.impl.8` finds it if a service answers a request of the lost module while "
        "the next one waits for an answer with the same matchtag"
    ),
    "restart-starts-queues": "more seeds: `promised` finds it if a stopped queue is read back",
    "restored-priority-is-not-told": (
        "more seeds: 27.prioritize.1 finds it if a job that waits gets a new urgency and then its "
        "old one"
    ),
    "sched-answers-of-an-old-hello": (
        "more seeds: the job manager has to end while the scheduler looks up R of the jobs of hello"
    ),
    "sched-free-is-not-answered-when-late": (
        "a job manager that frees what the scheduler does not hold; ours does not, and no job "
        "manager of a world lies"
    ),
    "sched-grant-number": (
        "more seeds: a grant has to be taken back, and the job to get another, before R is stored"
    ),
    "sched-serves-before-ready": (
        "more seeds: a request has to come to the next scheduler between its hello and its ready"
    ),
    "sched-shrink-judges-no-queue": (
        "more seeds: `idle` finds it if nodes are shrunk while a job waits that needs them"
    ),
    "sched-shrink-keeps-grants": (
        "more seeds: `taken-back` finds it if nodes are shrunk while R is being stored"
    ),
    "subscription-to-a-known-topic-is-lost": (
        "a client that subscribes after others have come; modules subscribe as soon as they are "
        "there, and every peer that comes or goes lets the router look at all subscriptions anew"
    ),
    "timers-overtake-messages": (
        "a message that waits at the very moment at which a timer fires, and clears this timer"
    ),
}
"""By id of a mistake."""
