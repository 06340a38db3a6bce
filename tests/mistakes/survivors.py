"""What would find the mistakes that are seldom or never found, for the page of results."""

from __future__ import annotations

from typing import Final

WOULD_FIND: Final[dict[str, str]] = {
    "conservative-overdue-place": (
        "more worlds in which jobs outlive their limits while larger ones wait"
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
    "kvs-turns-held-commits-round": (
        "more seeds: several commits have to be in the transaction that finds the disk full; then "
        "`ordered` finds it"
    ),
    "old-grant-is-kept-after-an-update": (
        "an update of something else that the scheduler goes by, such as the queue; a new duration "
        "is asked for when the job has its resources"
    ),
    "read-back-job-is-refused": (
        "more seeds: the job manager has to read a job back after job-ingest has stored it and "
        "before it submits it"
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
}
"""By id of a mistake."""
