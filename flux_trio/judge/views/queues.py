"""Views of RFC 33: the configuration of queues, stopped queues, and the queue of each job.

The configuration is in the trace as records of kind `config`, and as requests to the job manager to
take another: one that it has not answered is in force for nobody. A trace that shows none exercises
nothing that depends on it. The anonymous queue is "".
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.checks.jobspecs import system
from flux_trio.judge.checks.queue_tables import ANONYMOUS, MANAGER, STOPS, Tables
from flux_trio.judge.checks.shapes import members, part
from flux_trio.judge.engine.selector import (
    EVENT,
    MODULE,
    OWN,
    errnum,
    job_id,
    logged,
    name_of,
    no_key,
    noted,
    payload,
    received,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Live, Place, Seen, view
from flux_trio.judge.views.calls import call_key
from flux_trio.judge.views.commits import NULL, decoded, encoded, stored_jobspecs
from flux_trio.judge.views.jobs import context_of
from flux_trio.judge.views.kvs import values_answered
from flux_trio.judge.views.traits import WITH_JOBSPEC
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.trace import Kind, Record

Rpc = tuple[str, int]
"""Client and matchtag."""

QUEUE: Final = "attributes.system.queue"
RELOAD: Final = topics.config_reload_of(topics.JOB_MANAGER)

EVERY: Final = "*"
"""Stands for all queues, in a trace that does not show their names."""

# --- the configuration


class Configured(Live, frozen=True, gc=False):
    """The configuration in force, and a new one that the job manager has not answered yet."""

    n: Place
    text: str
    """The configuration in force as JSON; "" if it is unknown."""
    asked: str = ""


def _fold_configured(
    was: Configured | None, _part: None, record: Record, _seen: Seen
) -> Configured | None:
    content = payload(record)
    if record.message is None:
        return Configured(record.n, _text(content))
    if isinstance(record.message, Request):
        asked = _text(_configuration(content))
        return Configured(record.n, "", asked) if was is None else was.but(asked=asked)
    if was is None or not was.asked:
        return was
    return was.but(asked="") if _is_refusal(record) else Configured(record.n, was.asked)


def _configuration(content: dict[str, Any]) -> Any:
    """Return the configuration of a request to take it; of flux-core it is the whole payload."""
    return content["config"] if content.keys() == {"config"} else content


def _is_refusal(record: Record) -> bool:
    return errnum(record) != 0 or "refusal" in payload(record)


def _text(tables: Any) -> str:
    kept = {key: part(tables, key, dict) for key in ("policy", "queues")}
    stops = part(tables, MANAGER, dict).get(STOPS)
    return encoded(kept if stops is None else {**kept, MANAGER: {STOPS: stops}})


CONFIGURED: Final = view(
    "configured",
    noted(Kind.CONFIG),
    received("request", RELOAD),
    sent("response", RELOAD),
    key=no_key,
    fold=_fold_configured,
)
"""A single state: the `Configured` of the job manager."""


def tables_of(seen: Seen) -> tuple[int, Tables] | None:
    """Return the configuration in force, with the record that has it; None if it is not certain."""
    found: Configured | None = seen.at(CONFIGURED)
    if found is None or found.asked or found.text in ("", NULL):
        return None
    return found.n, _tables(found.text)


@functools.lru_cache(maxsize=16)
def _tables(text: str) -> Tables:
    return Tables(decoded(text))


def _new_tables(record: Record, seen: Seen) -> Tables | None:
    """Return the tables that are in force with this record; None if they stay as they were."""
    if record.message is None:
        return Tables(payload(record))
    found: Configured | None = seen.at(CONFIGURED)  # as it was before this record
    if _is_refusal(record) or found is None or found.asked in ("", NULL):
        return None
    return _tables(found.asked)


NEW_TABLES: Final = (*noted(Kind.CONFIG), *sent("response", RELOAD))


# --- the queue of a job


def _jobspec_queues(record: Record, _seen: Seen) -> Iterable[tuple[int, str]]:
    return [
        (jobid, queue_of(decoded(text)) if '"queue"' in text else ANONYMOUS)
        for jobid, text in stored_jobspecs(record)
    ]


def queue_of(jobspec: Any) -> str:
    return str(system(jobspec).get("queue") or ANONYMOUS)


def _fold_queue(was: str | None, named: str | None, record: Record, _seen: Seen) -> str | None:
    if named is not None:
        return named or None
    if record.message is not None:
        # Only for a trace that begins late: the request waits for a commit, and a later update may
        # be logged meanwhile.
        return was or queue_of(payload(record).get("jobspec")) or None
    if name_of(record) in ("clean", "invalidate"):
        return None
    found = context_of(record).get(QUEUE)
    return str(found) if found else was


JOB_QUEUES: Final = view(
    "queues of jobs",
    sent("request", topics.SCHED_ALLOC),
    logged("jobspec-update"),
    while_live(OWN, logged("clean", "invalidate")),
    key=job_id,
    parts=_jobspec_queues,
    many=sent("request", *topics.COMMITS, mark=WITH_JOBSPEC),
    fold=_fold_queue,
)
"""The name of the queue of each active job, by job id; jobs of the anonymous queue are left out."""


def queue_of_job(seen: Seen, jobid: Any) -> str:
    """Return the queue of an active job."""
    return str(seen.at(JOB_QUEUES, jobid) or ANONYMOUS)


# --- stopping and starting


class Asking(Live, frozen=True, gc=False):
    """A request to stop or start queues that was not answered; it may still be refused."""

    rpc: Rpc
    n: Place
    is_stop: bool
    queues: tuple[str, ...]


class Queues(Live, frozen=True, gc=False):
    """Which queues are configured, and which of them are stopped."""

    stopped: tuple[tuple[str, Place], ...] = ()
    """The stopped queues, each with the record that stopped it; the record is 0 if the queue may
    have been started since.

    A queue that leaves the configuration and comes back: from when it leaves, it is uncertain until
    somebody stops or starts it.
    """
    names: tuple[str, ...] | None = None
    """The names of the configured queues, ANONYMOUS if queues have no names; None if they are
    unknown."""
    t: float = 0.0
    """The time of the last request to stop or start a queue."""
    n: Place = 0
    """The record of that request."""
    started: tuple[tuple[str, ...], Place] = ((), 0)
    """The queues that were certainly stopped until the last request to start some, and its
    record. An earlier request that is not answered may have started a queue before."""
    asked: tuple[Asking, ...] = ()
    is_reloading: bool = False
    """Whether the job manager has yet to answer a request to take another configuration."""
    running: tuple[str, ...] = ()
    """The queues that were started since every queue was stopped."""
    parents: tuple[tuple[str, str], ...] = ()
    """Pairs of a virtual queue and its parent: a job waits for both to be started."""

    def stop_of(self, queue: str) -> int | None:
        """Return the record of the stop, 0 if it is uncertain, None if the queue is not stopped.

        Nothing is asked for a job of a queue that is not configured.
        """
        own = self._stop_of(queue)
        parent = dict(self.parents).get(queue)
        return self._stop_of(parent) if own is None and parent is not None else own

    def is_start_open(self, queue: str) -> bool:
        """Whether a request to start the queue is not answered."""
        return any(is_among(queue, each.queues) for each in self.asked if not each.is_stop)

    def _stop_of(self, queue: str) -> int | None:
        if self.is_reloading or (self.names is not None and queue not in self.names):
            return 0
        if any(is_among(queue, each.queues) for each in self.asked):
            return 0
        stopped = dict(self.stopped)
        return stopped.get(queue, None if queue in self.running else stopped.get(EVERY))


STARTED: Final = Queues()


def is_among(queue: str, meant: tuple[str, ...]) -> bool:
    """Whether a queue is one of those that a request means."""
    return queue in meant or EVERY in meant


_REFUSALS: Final = (Errno.EINVAL, Errno.EPERM, Errno.EPROTO)
_CHECKPOINT: Final = '{"queues":'  # how the job manager's checkpoint begins


def _fold_queues(queues: Queues | None, _part: None, record: Record, seen: Seen) -> Queues:
    queues = queues or STARTED
    if record.kind == MODULE and not seen.facts.is_manager_gone(record):
        return queues
    if record.kind in (EVENT, MODULE):  # the memory of a restarted job manager is unknown
        names = [name for name, _ in queues.stopped]
        names += [name for each in queues.asked for name in each.queues]
        names += _stopped_at_start(seen)
        unsure = tuple((name, 0) for name in dict.fromkeys(names))
        is_known = unsure == queues.stopped and not queues.asked and not queues.is_reloading
        return queues if is_known else queues.but(stopped=unsure, asked=(), is_reloading=False)
    if record.message is None:
        return _configured(queues, record, seen)
    match topic_of(record), isinstance(record.message, Response):
        case topics.KVS_LOOKUP, _:
            return _restored(queues, record, seen)
        case topic, is_answer if topic == RELOAD:
            queues = _configured(queues, record, seen) if is_answer else queues
            return queues.but(is_reloading=not is_answer)
        case _, True:
            return _answered(queues, record)
    meant = _meant(payload(record), queues)
    asking = Asking(call_key(record), record.n, payload(record).get("start") is False, meant)
    if not asking.is_stop:
        started = tuple(
            name
            for name, n in queues.stopped
            if n and is_among(name, meant) and not queues.is_start_open(name)
        )
        queues = queues.but(started=(started, record.n))
    return queues.but(asked=(*queues.asked, asking), t=record.t, n=record.n)


def _stopped_at_start(seen: Seen) -> list[str]:
    """Return the queues that a job manager finds stopped unless it remembers them otherwise."""
    found: Configured | None = seen.at(CONFIGURED)
    texts = (found.text, found.asked) if found is not None else ()
    tables = [_tables(text) for text in texts if text not in ("", NULL)]
    return [
        name
        for each in tables
        for name in (each.names or (ANONYMOUS,))
        if each.stops_on_restart or each.starts_stopped(name)
    ]


def _answered(queues: Queues, record: Record) -> Queues:
    """What an answer of the job manager says: a request that is refused has changed nothing.

    Another error says that the change could not be stored; whether it is in force is uncertain.
    """
    rpc = call_key(record)
    asking = next((each for each in queues.asked if each.rpc == rpc), None)
    if asking is None:
        return queues
    asked = [each for each in queues.asked if each is not asking]
    stopped = dict(queues.stopped)
    if error := errnum(record):
        changing = {*asking.queues, *(stopped if EVERY in asking.queues else ())}
        unsure = sorted(each for each in changing if (each in stopped) is not asking.is_stop)
        stopped |= dict.fromkeys(unsure if error not in _REFUSALS else (), 0)
        return queues.but(stopped=tuple(stopped.items()), asked=tuple(asked))
    # The answer to an earlier request for the same queues went to a client that has gone.
    meant = asking.queues
    asked = [
        each
        for each in asked
        if each.n > asking.n or not all(is_among(name, meant) for name in each.queues)
    ]
    others = [each for each in queues.stopped if not is_among(each[0], meant)]
    stops = [(each, asking.n) for each in meant] if asking.is_stop else []
    running = [each for each in queues.running if not is_among(each, meant)]
    running += meant if EVERY in stopped and not asking.is_stop and EVERY not in meant else ()
    return queues.but(stopped=(*others, *stops), asked=tuple(asked), running=tuple(running))


def _restored(queues: Queues, record: Record, seen: Seen) -> Queues:
    """What a job manager reads of the queues of an earlier run: those may be stopped."""
    is_read = record.party == (seen.facts.manager or topics.JOB_MANAGER)
    texts = [each for each in values_answered(record) if isinstance(each, str)] if is_read else []
    text = next((each for each in texts if each.startswith(_CHECKPOINT)), "")
    if not text:
        return queues
    stopped = _stopped_in(decoded(text), queues.names or (ANONYMOUS,))
    others = tuple(each for each in queues.stopped if each[0] not in stopped)
    return queues.but(stopped=(*others, *((name, 0) for name in stopped)))


def _stopped_in(checkpoint: Any, names: tuple[str, ...]) -> list[str]:
    """Return the queues that are stopped by a checkpoint; all of `names` in a restored copy."""
    if part(checkpoint, "all_stopped", str):
        return list(names)
    saved = members(part(checkpoint, "queues", list))
    return [str(each.get("name") or ANONYMOUS) for each in saved if each.get("start") is False]


def _meant(asked: dict[str, Any], queues: Queues) -> tuple[str, ...]:
    """Return the queues of an administrator's request."""
    name = asked.get("name")
    everyone = asked.get("all") or name is None
    return (queues.names or (EVERY,)) if everyone else (str(name),)


def _configured(queues: Queues, record: Record, seen: Seen) -> Queues:
    tables = _new_tables(record, seen)
    if tables is None:
        return queues
    names, stopped = tables.names or (ANONYMOUS,), dict(queues.stopped)
    known = queues.names or ()
    new = (name for name in names if name not in known and tables.starts_stopped(name))
    stopped = dict.fromkeys(new, record.n) | stopped
    stopped |= dict.fromkeys((name for name in known if name not in names), 0)
    parents = tuple(tables.parents.items())
    return queues.but(
        stopped=tuple(stopped.items()), names=names, parents=parents, t=record.t, n=record.n
    )


QUEUES: Final = view(
    "queues",
    received("request", topics.JOB_QUEUE_START, RELOAD),
    sent("response", topics.JOB_QUEUE_START),
    received("response", topics.KVS_LOOKUP),
    NEW_TABLES,
    noted(Kind.MODULE),
    logged("flux-restart"),
    key=no_key,
    fold=_fold_queues,
    reads=(CONFIGURED,),
)
"""A single state: the `Queues`; there is none before the trace says something about queues."""


def stop_of(seen: Seen, queue: str) -> int | None:
    """Return the record of a queue's stop, 0 if it is uncertain, None if it is not stopped."""
    queues: Queues | None = seen.at(QUEUES)
    return None if queues is None else queues.stop_of(queue)


# --- disabling and enabling


class Disabled(Live, frozen=True, gc=False):
    """Which queues refuse jobs."""

    asked: tuple[tuple[Rpc, tuple[str, ...]], ...] = ()
    """The requests to disable queues that were not answered, each with its queues."""
    since: tuple[tuple[str, Place], ...] = ()
    """The queues that are surely disabled, each with the record of the answer that says so."""


def _fold_disabled(
    was: Disabled | None, _part: None, record: Record, seen: Seen
) -> Disabled | None:
    was = was or Disabled()
    if record.kind == MODULE:
        is_end = seen.facts.is_manager_gone(record)
        return None if is_end else was  # what the next one remembers is not said
    if record.message is None or topic_of(record) == RELOAD:
        tables = _new_tables(record, seen)
        return was if tables is None else _of_configured(was, tables)
    if isinstance(record.message, Request):
        meant = _meant(payload(record), seen.at(QUEUES) or STARTED)
        if payload(record).get("enable") is False:
            return was.but(asked=(*was.asked, (call_key(record), meant)))
        asked = tuple([(each, _without(names, meant)) for each, names in was.asked])
        return Disabled(asked, tuple(each for each in was.since if _without(each[:1], meant)))
    rpc = call_key(record)
    done = [name for each, names in was.asked if each == rpc for name in names]
    asked = tuple(each for each in was.asked if each[0] != rpc)
    since = () if errnum(record) else tuple((name, record.n) for name in done)
    return Disabled(asked, (*was.since, *since))


def _of_configured(was: Disabled, tables: Tables) -> Disabled:
    """Forget queues that are not configured: how they come back is not said."""
    names = tables.names or (ANONYMOUS,)
    asked = tuple([(rpc, tuple(n for n in each if n in names)) for rpc, each in was.asked])
    return Disabled(asked, tuple(each for each in was.since if each[0] in names))


def _without(names: tuple[str, ...], gone: tuple[str, ...]) -> tuple[str, ...]:
    """Of every queue, nothing is certain once one of them is left out."""
    return tuple(each for each in names if not is_among(each, gone) and each != EVERY)


DISABLED: Final = view(
    "disabled queues",
    received("request", topics.JOB_QUEUE_ENABLE),
    sent("response", topics.JOB_QUEUE_ENABLE),
    while_live(OWN, noted(Kind.MODULE), NEW_TABLES),
    key=no_key,
    fold=_fold_disabled,
    reads=(QUEUES, CONFIGURED),
)
"""A single state: the `Disabled` queues."""


def disabled_at(seen: Seen, queue: str) -> int:
    """Return the record at which the job manager disabled a queue; 0 if that is not certain."""
    found: Disabled | None = seen.at(DISABLED)
    if found is None:
        return 0
    since = dict(found.since)
    return since.get(queue, since.get(EVERY, 0))
