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
        "jobs with processes: a client that reads the files of a job whose final release is sent "
        "keeps it; a simulated job has no files, and is forgotten with the release. A test of "
        "`tests/cores/test_exec_streams.py` finds it"
    ),
    "kvs-turns-held-commits-round": (
        "more seeds: several commits have to be in the transaction that finds the disk full; then "
        "`ordered` finds it"
    ),
    "read-back-job-is-refused": (
        "more seeds: the job manager has to read a job back after job-ingest has stored it and "
        "before it submits it"
    ),
    "rearmed-timer-keeps-its-old-time": (
        "a core that moves a timer to a later time and relies on it; the cores of this program set "
        "a timer again only when it has fired, or for a retry that may come early. A test of "
        "`tests/services/test_runner.py` finds it"
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
        "a job manager that frees what the scheduler does not hold; ours does not. If one lies, "
        "nobody waits for the answer: it is unloaded before the debts of a scheduler are counted. "
        "A test of `tests/cores/test_sched_core.py` finds it"
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
    "timers-overtake-messages": (
        "a message that waits at the very moment at which a timer fires, and clears this timer. A "
        "test of `tests/services/test_runner.py` finds it"
    ),
}
"""By id of a mistake."""
