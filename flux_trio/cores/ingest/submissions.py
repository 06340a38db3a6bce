"""Submissions as they come to ingest: read, checked, and in some editions filled in.

In the current edition the jobspec that is stored has what the policy and the job's queue add: a
default queue and duration, and constraints (RFC 33, Jobspec Defaults).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.config import Config, NoQueue, assign
from flux_trio.cores.state import Part
from flux_trio.editions import submission
from flux_trio.formats import (
    FormatError,
    Jobspec,
    apply_updates,
    cached_for_short,
    costs_of,
    document,
)
from flux_trio.formats.signed_jobspec import unwrap
from flux_trio.messages import Errno, FluxError, Request, UnfitError, check_texts
from flux_trio.protocols import URGENCY_DEFAULT, JobFlag

TEXT_BYTES_MAX: Final = {"system.job.name": 1024, "system.cwd": 4096}
"""Bounds of attributes that lists show."""


class New(NamedTuple):
    """A submission that may be stored: its jobspec as an object and as JSON."""

    jobspec: dict[str, Any]
    text: bytes
    urgency: int
    flags: int  # in the numbers of the edition
    is_checked: bool  # whether somebody may refuse it as infeasible


class Submissions(Part):
    """Reads submissions by the configuration in force."""

    config: Config

    def __init__(self, config: Config) -> None:
        self.config = config

    def read(self, request: Request) -> New:
        """Return a submission. Raises FluxError."""
        new = submission.SUBMIT.read(request)
        edition = self.config.edition_value
        flags = new.flags // edition.first_flag
        if not request.is_owner:
            _check_guest(new.urgency, flags)
        try:
            jobspec = _jobspec_of(request, new)
            text = _as_json(jobspec)
            _check_jobspec_cached(text)
            if edition.ingest_fills_in:
                jobspec = self._filled_in(jobspec)
                text = _as_json(jobspec)
        except (FormatError, UnfitError, NoQueue) as error:
            raise FluxError(Errno.EINVAL, str(error)) from None
        is_checked = not flags & JobFlag.NOVALIDATE
        return New(jobspec, text, new.urgency, new.flags, is_checked)

    def _filled_in(self, jobspec: dict[str, Any]) -> dict[str, Any]:
        """Return a valid jobspec with what its queue adds. Raises NoQueue and FormatError."""
        system = jobspec.get("attributes", {}).get("system", {})
        return apply_updates(jobspec, assign(self.config, system).updates)

    def demand(self, request: Request) -> submission.Demand:
        """Return what counts for the user's limits."""
        new = self.read(request)
        jobspec = Jobspec.parse(new.jobspec)
        size = len(msgspec.json.encode(jobspec.without_environment()))
        return submission.Demand(size, len(new.text), costs_of(jobspec.system))


def _jobspec_of(request: Request, new: submission.Submit) -> dict[str, Any]:
    """Return the jobspec of a submission. Raises FluxError and FormatError."""
    if new.J is None:
        if new.jobspec is msgspec.UNSET:
            raise FluxError(Errno.EPROTO, f"{request.topic}: payload: expected jobspec or J")
        return new.jobspec
    signed = unwrap(new.J)
    if signed.userid != request.userid:
        text = f"signer={signed.userid} != requestor={request.userid}"
        raise FluxError(Errno.EPERM, text)
    return document(signed.jobspec)


def _as_json(jobspec: dict[str, Any]) -> bytes:
    """Return the text to store. Raises UnfitError for words of this process that are no UTF-8."""
    try:
        return msgspec.json.encode(jobspec)
    except UnicodeEncodeError:
        check_texts(jobspec, "jobspec")
        raise


def _check_guest(urgency: int, flags: int) -> None:
    """Raise FluxError, with flux-core's errnos and texts, if only the owner may ask for this."""
    if flags & JobFlag.NOVALIDATE:
        text = "only the instance owner can submit with FLUX_JOB_NOVALIDATE"
        raise FluxError(Errno.EPERM, text)
    if urgency > URGENCY_DEFAULT:
        text = f"only the instance owner can submit with urgency >{URGENCY_DEFAULT}"
        raise FluxError(Errno.EINVAL, text)
    if flags & JobFlag.WAITABLE:
        text = "only the instance owner can submit with FLUX_JOB_WAITABLE"
        raise FluxError(Errno.EINVAL, text)


def _check_jobspec(text: bytes) -> None:
    """Raise FormatError for an invalid jobspec, or one with a text that is too long for lists."""
    jobspec = Jobspec.parse(text)
    for path, most in TEXT_BYTES_MAX.items():
        value = jobspec.attribute(path)
        if isinstance(value, str) and len(value.encode(errors="surrogatepass")) > most:
            where = f"jobspec: attributes.{path}"
            raise FormatError(f"at most {most} bytes", value, where)


# jobspecs of a batch are often equal
_check_jobspec_cached = cached_for_short(_check_jobspec, maxsize=16)
