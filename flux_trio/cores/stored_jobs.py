"""How services read stored jobs: which are active, some values, eventlogs, output. Pure.

A service that starts reads the index of active jobs (`job_index`) page by page, and values of the
jobs on a page before it reads the next page. So the time of a start grows with the number of active
jobs only. The values of a page come in as many answers as their length needs, so that the memory of
a start does not grow with what users have put into their jobspecs.

`job.<id>.guest.output` holds the beginning of a finished job's output, one RFC 24 eventlog. Longer
output goes on in `guest.output.1`, `guest.output.2` and so on, with whole lines in each; it ends
before the first of these keys that is absent. So no value is larger than a message may be. A key is
also absent if the job was purged while its output was read. So a reader who finds no further key
asks `kvs.count` for the job: if the job has no key at all, the output was cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec

from flux_trio.cores.job_index import ACTIVE, jobid_in
from flux_trio.cores.kvs_calls import (
    LOOKUP_JOBS_MAX,
    Ask,
    count_below,
    count_in,
    look_up_all,
    page_in,
    read_chars,
    read_page,
)
from flux_trio.cores.pages import page_size
from flux_trio.formats import (
    EVENTLOG,
    Event,
    FormatError,
    ResourceSet,
    format_fluid,
    job_key,
    parse_eventlog,
    parse_fluid,
    parse_r,
)
from flux_trio.formats.meanings import JobId, KvsKey
from flux_trio.messages import Errno, FluxError, Response
from flux_trio.protocols import InvalidTransition, Job, JobEvent, replay_as

DIRECTORY: Final = "job"
LAST_KEYS: Final = 16  # some may be of other things than jobs

JobRead: TypeAlias = tuple[int, list[str | None]]
"""A job id, and the values that were wanted of the job."""

JobT = TypeVar("JobT", bound=Job)


class ActivePage(msgspec.Struct, frozen=True):
    """Active jobs on one page of the index; the next page begins at `after`, None for the last."""

    jobids: tuple[JobId, ...]
    after: KvsKey | None


def read_active(after: str = "") -> Ask:
    """Ask for the page of the index of active jobs that begins at `after`."""
    return read_page(ACTIVE, page_size(LOOKUP_JOBS_MAX), after, values=False)


def active_in(response: Response) -> ActivePage:
    """Return the page that `response` has. Raises FluxError."""
    keys = page_in(response).keys
    after = keys[-1] if len(keys) == page_size(LOOKUP_JOBS_MAX) else None
    return ActivePage(tuple(map(jobid_in, keys)), after)


def read_last_jobs() -> Ask:
    """Ask for the last keys of jobs: the last of them that is a job's has the greatest id."""
    return read_page(DIRECTORY, page_size(LAST_KEYS), reverse=True, values=False)


def last_job_in(keys: Iterable[str]) -> int | None:
    """Return the job of the first of these keys that is a job's; None without one."""
    for key in keys:
        try:
            return parse_fluid(".".join(key.split(".")[:5]))
        except FormatError:
            continue  # not a job's directory
    return None


class JobsWanted(msgspec.Struct, frozen=True):
    """The values `names` of jobs that are yet to be read, some at a time: see `READ_CHARS_MAX`."""

    jobids: tuple[JobId, ...]
    names: tuple[str, ...]
    begun: tuple[str | None, ...] = ()
    """The first values of the first job, which came with those of the jobs before it."""

    def ask(self) -> Ask:
        """Ask for the values; `take` takes the answer."""
        keys = [job_key(jobid, name) for jobid in self.jobids for name in self.names]
        return look_up_all(keys[len(self.begun) :], read_chars())

    def take(self, values: Sequence[str | None]) -> tuple[list[JobRead], JobsWanted | None]:
        """Return each job whose values have all come, with them; and what is yet to be read.

        Raises FluxError(EPROTO) if there are no values, or more than were wanted.
        """
        come = [*self.begun, *values]
        count = len(self.names)
        if not values or len(come) > count * len(self.jobids):
            most = count * len(self.jobids) - len(self.begun)
            raise FluxError(Errno.EPROTO, f"expected 1 to {most} values, got {len(values)}")
        number = len(come) // count
        read = [
            (jobid, come[n * count : (n + 1) * count])
            for n, jobid in enumerate(self.jobids[:number])
        ]
        if number == len(self.jobids):
            return read, None
        begun = tuple(come[number * count :])
        return read, JobsWanted(self.jobids[number:], self.names, begun)


def fold_eventlog(
    kind: Callable[[int, Event], JobT], jobid: int, eventlog: str
) -> tuple[JobT, list[Event]]:
    """Return the job that a whole stored eventlog makes, and its events; `kind` as in `replay_as`.

    They end with `clean`: whoever has write access may have added something to the value since.
    Raises FluxError(EBADMSG) that names the key, for a text that is not an eventlog or that RFC 21
    does not allow.
    """
    try:
        events = _until_clean(parse_eventlog(eventlog))
        return replay_as(kind, jobid, events), events
    except (FormatError, InvalidTransition) as error:
        raise _not_an_eventlog(jobid, str(error)) from None
    except KeyError as error:
        raise _not_an_eventlog(jobid, f"a context without the key {error}") from None


def _until_clean(events: list[Event]) -> list[Event]:
    for number, event in enumerate(events, 1):
        if event.name == JobEvent.CLEAN:
            return events[:number]
    return events


def read_r(jobid: int, text: str | None) -> ResourceSet:
    """Return R of a job from its stored text, None for an absent one.

    Raises FluxError(ENOENT), or FormatError for an invalid R.
    """
    if text is None:
        raise FluxError(Errno.ENOENT, f"R: {job_key(jobid, 'R')}: no such key")
    return parse_r(text)


def _not_an_eventlog(jobid: int, problem: str) -> FluxError:
    key = job_key(jobid, EVENTLOG)
    return FluxError(Errno.EBADMSG, f"{key}: not a job eventlog: {problem}")


# --- output

OUTPUT: Final = "guest.output"
PIECE_CHARS: Final = 1 << 18
"""Characters of a piece after which the next one begins, of output that grows."""


def output_key(piece: int) -> str:
    """Return the name, below the job's key, of piece 0, 1, 2 and so on of its output."""
    return f"{OUTPUT}.{piece}" if piece else OUTPUT


def count_keys(jobid: int) -> Ask:
    """Ask the kvs how many keys it has of a job."""
    return count_below(format_fluid(jobid, "kvs"))


def check_not_purged(response: Response) -> None:
    """Raise FluxError if the answer to `count_keys` is that the job has no key, or an error."""
    if not count_in(response):
        raise FluxError(Errno.ENOENT, "the job was purged meanwhile")
