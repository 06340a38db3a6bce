"""Violations of RFC 19, 22, 29 and 31: how ids, hosts and constraints are spelled."""

from __future__ import annotations

from typing import Any

from flux_trio.messages import topics
from tests.judge.planted.rfc20_format import with_r
from tests.support.judged import Trace, edit_payload, find, find_all
from tests.support.planted import Planted

PLANTED = Planted()


def bad_ranks(clause: str, *texts: str) -> None:
    """One violation a text: a job is released with it for ranks; the trace ends there."""
    for text in texts:

        def change(trace: Trace, text: str = text) -> Trace:
            release = find(trace, "job-exec.start", "response", type="release")
            data = {**release.message.payload["data"], "ranks": text}
            return edit_payload(trace, release, data=data)[: release.n]

        change.__name__ = f"{clause}: ranks {text!r}"
        PLANTED.violation(clause, "everyday", cut=True)(change)


bad_ranks("22.idset.1", "0,0", "0-1,1")
bad_ranks("22.idset.2", "1,0", "0-1-2", "0,,1")
bad_ranks("22.idset.3", "0x1", "a")
bad_ranks("22.idset.4", "00", "0,01")
bad_ranks("22.idset.7", "0 1", "{0}")


def bad_hosts(clause: str, *texts: str) -> None:
    """One violation a text: the nodelist of an R; nothing follows its commit."""
    for text in texts:

        def change(trace: Trace, text: str = text) -> Trace:
            def hosts(r: dict[str, Any]) -> None:
                r["execution"]["nodelist"] = [text]

            return with_r(trace, hosts)

        change.__name__ = f"{clause}: nodelist {text!r}"
        PLANTED.violation(clause, "everyday")(change)


bad_hosts("29.hostlist.2", "a,,b")
bad_hosts("29.hostlist.3", "node[0]x[1]", "node]0[")
bad_hosts("29.hostlist.5", "node 0", "nöde0")
bad_hosts("29.hostlist.6", "node[a]", "node[0-1-2]")
bad_hosts("29.hostlist.10", "node[0", "node0]")


@PLANTED.violation("19.fluid.6", "everyday")
def a_jobs_key_is_decimal(trace: Trace) -> Trace:
    commit = find_all(trace, topics.KVS_COMMIT, "request", party="job-ingest")[0]
    (how, key, text), *ops = commit.message.payload["ops"]
    decimal = int(key.removeprefix("job.").rpartition(".")[0].replace(".", ""), 16)
    return edit_payload(trace, commit, ops=[[how, f"job.{decimal}.jobspec", text], *ops])


@PLANTED.violation("31.constraints.1", "jobspecs", cut=True)
def the_value_of_an_operator_is_no_list(trace: Trace) -> Trace:
    alloc = find(trace, topics.SCHED_ALLOC, "request", nth=-1)
    jobspec = alloc.message.payload["jobspec"]
    system = {**jobspec["attributes"]["system"], "constraints": {"hostlist": "node0"}}
    other = {**jobspec, "attributes": {**jobspec["attributes"], "system": system}}
    return edit_payload(trace, alloc, jobspec=other)[: alloc.n]
