"""Jobs that ended for flux-core while no execution service was there, and whose processes may run.

flux-core asks the next service only for jobs that are in RUN. A job that was canceled meanwhile is
over for it: it frees the resources and asks nobody to end the processes. A job that was being ended
when its service left stays in CLEANUP until something happens to it. So when flux-core has accepted
the service, the namespaces that an earlier program has left are looked at. The core gets a start of
its own for each such job, finds its fatal exception, and ends what runs. Then an exception that
changes nothing (severity 7) lets flux-core go on with a job in CLEANUP.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from flux_trio.attach.bridge import Bridge, Reads
from flux_trio.attach.exec.journal import Journal
from flux_trio.cores.exec.guest_contents import EXEC_LOG, PLACES
from flux_trio.cores.stored_jobs import fold_eventlog
from flux_trio.editions import CURRENT, flux_kvs, rfc32
from flux_trio.formats import EVENTLOG, FormatError, job_key, parse_eventlog, parse_jobspec, parse_r
from flux_trio.formats.meanings import JobId
from flux_trio.messages import ROLE_OWNER, FluxError, Level, Payload, Request, Response, topics
from flux_trio.messages.types import NORESPONSE
from flux_trio.protocols import Job, JobState

_NAMESPACE: Final = re.compile("job-([0-9]{1,20})", re.ASCII)

LEFTOVERS: Final = "leftovers"
"""The sender of the bridge's own requests to the core."""
SEVERITY_DEBUG: Final = 7
WOKEN: Final = "its processes have ended while no execution service was asked for it"


class Leftover(msgspec.Struct, frozen=True):
    """A job whose namespace an earlier program has left."""

    id: JobId


class NamespacesListed(msgspec.Struct, frozen=True):
    """Answers the question for all namespaces of the kvs."""


class Acknowledged(msgspec.Struct, frozen=True):
    """Answers a request whose only bad news is an error, which goes to the log."""

    what: str


def owners_request(owner: int, topic: str, payload: Payload, flags: int = NORESPONSE) -> Request:
    """Return a request of the bridge itself to the core, in the name of the instance's owner."""
    return Request(topic, payload, 0, flags, userid=owner, rolemask=ROLE_OWNER, routes=(LEFTOVERS,))


class Leftovers:
    """`start` is the topic of start requests; `owner` is the userid of the instance's owner."""

    def __init__(self, bridge: Bridge[Any], journal: Journal, start: str, owner: int) -> None:
        self._bridge = bridge
        self._journal = journal
        self._start = start
        self._owner = owner
        self._waiting: set[int] = set()  # jobs in CLEANUP, whose end the core is to report

    def seek(self) -> None:
        """Look for the namespaces that an earlier program has left."""
        self._bridge.ask(topics.KVS_NAMESPACE_LIST, None, NamespacesListed())

    def listed(self, response: Response) -> None:
        """Read what there is of the jobs with a namespace that nobody has asked for."""
        try:
            if response.errnum:
                raise FluxError(response.errnum, response.error_text)
            found = flux_kvs.NAMESPACE_LIST.read(response).namespaces
        except FluxError as error:
            self._bridge.log(Level.ERR, f"{topics.KVS_NAMESPACE_LIST}: {error.text}")
            return
        for each in found:
            match = _NAMESPACE.fullmatch(each.namespace)
            if match and not self._journal.is_asked(jobid := int(match[1])):
                names = (EVENTLOG, "jobspec", "R", f"guest.{EXEC_LOG}", f"guest.{PLACES}")
                keys = [job_key(jobid, name) for name in names]
                self._bridge.read_keys(Reads(Leftover(jobid), keys))

    def read(self, jobid: int, values: list[str | None]) -> None:
        """End what is left of a job, if it is over for flux-core and its namespace is ours."""
        if self._journal.is_asked(jobid):
            return
        try:
            self._look_at(jobid, *values)
        except (FluxError, FormatError) as error:
            self._bridge.log(Level.ERR, f"job {jobid}, which is over, cannot be ended: {error}")

    def _look_at(
        self,
        jobid: int,
        eventlog: str | None,
        jobspec: str | None,
        r: str | None,
        exec_log: str | None,
        places: str | None,
    ) -> None:
        if eventlog is None or jobspec is None or r is None:
            return
        job, _ = fold_eventlog(Job, jobid, eventlog)
        waits = job.state is JobState.CLEANUP
        if not waits and job.state is not JobState.INACTIVE:
            return
        names = {event.name for event in parse_eventlog(exec_log or "")}
        if job.released or (exec_log is None and places is None):
            # Its end is told, or its namespace was not linked yet: there is nothing else of it.
            gone = flux_kvs.NAMESPACE.write(flux_kvs.Namespace(flux_kvs.namespace_of(jobid)))
            self._bridge.ask(topics.KVS_NAMESPACE_REMOVE, gone, Acknowledged(""))
            if waits:
                self._wake(jobid)
        elif places is not None or "done" in names:
            spec = parse_jobspec(jobspec.encode()).to_json()
            start = rfc32.Start(jobid, job.userid, spec, reattach=True, R=parse_r(r))
            self._waiting |= {jobid} if waits else set()
            asked = owners_request(self._owner, self._start, CURRENT.start.write(start), flags=0)
            self._bridge.to_core.append(asked)

    def told(self, response: Response) -> None:
        """Take what the core tells of such a job; its end lets flux-core go on with the job."""
        answer = CURRENT.start_answer.read(response)
        if isinstance(answer.report, rfc32.Released) and answer.id in self._waiting:
            self._waiting.discard(answer.id)
            self._wake(answer.id)

    def _wake(self, jobid: int) -> None:
        """Raise an exception that changes nothing, so that flux-core looks at a job again."""
        raised = {"id": jobid, "severity": SEVERITY_DEBUG, "type": "exec", "note": WOKEN}
        self._bridge.ask(topics.JOB_RAISE, raised, Acknowledged(""))
