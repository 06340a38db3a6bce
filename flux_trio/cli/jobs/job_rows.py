"""Rows of `flux-trio jobs`: the fields of flux-jobs(1) from a job-list record.

A record is one job of a job-list.list response. An unknown value is an empty text. Left out: the
fields of nested instances (`instance.*`), emoji.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from flux_trio.cli.connection.job_query import RESULTS
from flux_trio.cli.jobs.nested import address_in
from flux_trio.cli.terminal.columns import Field, FieldsRow, short_duration
from flux_trio.cli.terminal.named_formats import NamedFormat
from flux_trio.cli.terminal.shown_values import local_time, shown_id, user_name
from flux_trio.formats import FluidForm, format_fluid
from flux_trio.protocols import PENDING, JobState

Record = Mapping[str, Any]

_ID: Final = "{id.f58:>12} ?:{queue:<8.8} "
_WHOSE: Final = _ID + "+:{username:<8} {name:<10.10+} "
FORMATS: Final = {
    "default": NamedFormat(
        _WHOSE + "{status_abbrev:>2.2} {ntasks:>6} {nnodes:>6h} {contextual_time!F:>8h} "
        "{contextual_info}",
        "Jobs, and why each waits or where it runs",
    ),
    "long": NamedFormat(
        _WHOSE + "{status:>9.9} {ntasks:>6} {nnodes:>6h} {t_submit!d:%b%d %R::>12} "
        "{t_remaining!F:>12h} {contextual_time!F:>8h} {contextual_info}",
        "As default, with times",
    ),
    "deps": NamedFormat(
        _ID + "{name:<10.10+} {urgency:<3} {priority:<12} {state:<8.8} {dependencies}",
        "Urgency, priority and dependencies",
    ),
    "endreason": NamedFormat(
        _WHOSE + "{status_abbrev:>2.2} {t_inactive!d:%b%d %R::>12h} {inactive_reason}",
        "Why each job ended",
    ),
}

_SHELL_REASONS: Final = {
    126: "Command invoked cannot execute",
    127: "command not found",
    128: "Invalid argument to exit",
}


class JobRow(FieldsRow):
    """The fields of one job at the time `now`, in seconds since the Unix epoch.

    `hindered` is why the job's queue schedules no job, "" if it does.
    """

    def __init__(self, record: Record, now: float, hindered: str = "") -> None:
        super().__init__(FIELDS, self)
        self.record = record
        self.now = now
        self.hindered = hindered
        self.state = JobState(record["state"])

    @property
    def runtime(self) -> float:
        """Seconds from the job's start to its end, or to now; never negative.

        How long a job ran is not known if the clock was set back and the instance restarted.
        """
        start = self.record.get("t_run")
        if start is None:
            return 0.0
        end = float(self.record.get("t_cleanup", self.now))
        return max(0.0, end - self._clock_step - float(start))

    @property
    def _clock_step(self) -> float:
        """Seconds by which the wall clock was set while the job ran; they are not run time."""
        return float(self.record.get("clock_step", 0.0))

    @property
    def t_remaining(self) -> float:
        """Seconds until the resources expire; 0 without an expiration or if not running."""
        if self.state is not JobState.RUN:
            return 0.0
        expiration = float(self.record.get("expiration") or 0.0)
        return max(0.0, expiration + self._clock_step - self.now)

    @property
    def priority(self) -> int | str:
        """The priority, "" if the job has not had one yet or never had one."""
        priority: int | str = self.record.get("priority", "")
        return priority

    @property
    def returncode(self) -> int | str:
        """Exit code, minus the signal's number, or -128 if canceled before start; "" if active."""
        status = self.record.get("waitstatus")
        if isinstance(status, int):
            return os.waitstatus_to_exitcode(status)
        return {"CANCELED": -128, "FAILED": 1, "TIMEOUT": 1}.get(self.result(0), "")

    def result(self, form: int) -> str:
        """Return the result's name (form 0) or abbreviation (1), "" while the job is active."""
        number = self.record.get("result")
        return "" if number is None else RESULTS[number][form]

    def status(self, form: int) -> str:
        """Return the state while the job is active, then the result; forms as in `result`."""
        if self.state is JobState.INACTIVE:
            return self.result(form)
        return self.state.name if form == 0 else self.state.name[0]

    @property
    def dependencies(self) -> str:
        """The dependencies of the job; begin times are shown as local times."""
        descriptions = self.record.get("dependencies", ())
        return ",".join(_dependency_text(each, self.now) for each in descriptions)

    @property
    def info(self) -> str:
        """Why the job waits, where it runs, or why it never ran."""
        if self.state is JobState.SCHED:
            return self._why_pending()
        reason = str(self.annotation("sched", "reason_pending"))
        if self.state is JobState.PRIORITY:
            return reason or "priority-wait"
        if self.state is JobState.DEPEND:
            return reason or f"depends:{self.dependencies}"
        where = str(self.record.get("nodelist", ""))
        return where or str(self.record.get("exception_type", ""))

    def _why_pending(self) -> str:
        if self.hindered and self.record["urgency"] and self.record["priority"]:
            return self.hindered
        estimate = self.annotation("sched", "t_estimate")
        if isinstance(estimate, (int, float)):
            left = estimate - self.now
            return f"eta:{short_duration(left) if left >= 0 else 'now'}"
        if self.record["urgency"] == 0:
            return "held"
        if self.record["priority"] == 0:
            return "priority-hold"
        return str(self.annotation("sched", "reason_pending"))

    @property
    def time(self) -> float:
        """The time limit while the job is pending, then the run time, in seconds."""
        return float(self.record.get("duration", 0.0)) if self.state & PENDING else self.runtime

    @property
    def inactive_reason(self) -> str:
        result, note = self.result(0), self.record.get("exception_note", "")
        kind = self.record.get("exception_type", "")
        fatal = self.record.get("exception_severity") == 0
        if not result:
            return ""
        if result == "CANCELED":
            return f"Canceled: {note}" if kind == "cancel" and note else "Canceled"
        if result == "TIMEOUT":
            return "Timeout"
        if result == "FAILED" and fatal and kind != "exec":
            return f"Exception: type={kind}" + (f" note={note}" if note else "")
        return _exit_reason(self.returncode)

    def annotation(self, top: str, path: str) -> object:
        """Return the annotation at a path below `top`, "" if there is none."""
        value: Any = self.record.get("annotations", {})
        for key in [*([top] if top != "annotations" else []), *(path.split(".") if path else [])]:
            value = value.get(key, "") if isinstance(value, dict) else ""
        return value or ""

    def to_json(self) -> dict[str, object]:
        """Return the job for `--json`, as flux jobs does: only known values; `jobid` is text."""
        exception = {
            key.removeprefix("exception_"): value
            for key, value in self.record.items()
            if key.startswith("exception_")
        }
        plain = {
            key: value
            for key, value in self.record.items()
            if not key.startswith("exception_") and (key != "expiration" or value)
        }
        computed: dict[str, object] = {
            "jobid": shown_id(self.record["id"]),
            "state": self.state.name,
            "result": self.result(0),
            "username": self["username"],
            "status": self.status(0),
            "returncode": self.returncode,
            "runtime": self.runtime or "",
            "t_remaining": self.t_remaining or "",
        }
        known = {key: value for key, value in computed.items() if value != ""}
        nothing: dict[str, object] = {"annotations": {}, "dependencies": []}
        return {**nothing, **plain, **known, "exception": exception}


def _dependency_text(description: str, now: float) -> str:
    """Return a dependency as flux jobs shows it: begin-time=1000.000 becomes begin@TIME."""
    scheme, _, value = description.partition("=")
    if scheme != "begin-time":
        return description
    try:
        moment_s = float(value)
    except ValueError:  # a plugin's own
        return description
    moment = local_time(moment_s)
    day = "" if moment.date() == local_time(now).date() else "%b%d-"
    return moment.strftime(f"begin@{day}%H:%M" + (":%S" if moment.second else ""))


def _exit_reason(code: int | str) -> str:
    if not isinstance(code, int):
        return ""
    if code < 0 or code > 128:
        return signal.strsignal(abs(code) % 128) or f"Signaled {abs(code) % 128}"
    return _SHELL_REASONS.get(code, f"Exit {code}")


class ShownId(int):
    """A job id that is shown in F58, or as the number that a format asks for."""

    def __str__(self) -> str:
        return shown_id(int(self))


def _jobid(form: FluidForm) -> Callable[[JobRow], object]:
    if form == "f58":
        return lambda row: shown_id(row.record["id"])
    return lambda row: format_fluid(row.record["id"], form)


def _plain(name: str, heading: str = "") -> Field:
    """Return a field that a record has under its name, with underscores for periods."""
    key = name.replace(".", "_")
    return Field(heading or name.upper().replace(".", "-"), lambda row: row.record.get(key, ""))


_ANNOTATIONS: Final = ("annotations", "sched", "user")
_ANNOTATION_HEADINGS: Final = {
    "sched.t_estimate": "T_ESTIMATE",
    "sched.reason_pending": "REASON",
    "sched.resource_summary": "RESOURCES",
}


def _annotation(field: str) -> Field:
    top, _, path = field.partition(".")
    heading = _ANNOTATION_HEADINGS.get(field, field.removeprefix("annotations.").upper())
    return Field(heading, lambda row: row.annotation(top, path))


class _Fields(dict[str, Field]):
    """The fields; an annotation may have any name, so each is a field."""

    def __missing__(self, field: str) -> Field:
        if field in self:
            return _annotation(field)
        raise KeyError(field)

    def __contains__(self, field: object) -> bool:
        known = super().__contains__(field)
        return known or (isinstance(field, str) and field.partition(".")[0] in _ANNOTATIONS)


_SAME_NAME: Final = (
    "name",
    "cwd",
    "queue",
    "project",
    "bank",
    "ntasks",
    "ncores",
    "nnodes",
    "duration",
    "expiration",
    "ranks",
    "nodelist",
    "success",
    "t_submit",
    "t_depend",
    "t_run",
    "t_cleanup",
    "t_inactive",
    "exception.occurred",
    "exception.severity",
    "exception.type",
    "exception.note",
)

FIELDS: Final = _Fields(
    {
        "id": Field("JOBID", lambda row: ShownId(row.record["id"])),
        **{f"id.{form}": Field("JOBID", _jobid(form)) for form in get_args(FluidForm)},
        "uri": Field("URI", lambda row: address_in(row.record)),
        "username": Field("USER", lambda row: user_name(row.record["userid"])),
        "priority": Field("PRI", lambda row: row.priority),
        "state": Field("STATE", lambda row: row.state.name),
        "state_single": Field("S", lambda row: row.state.name[0]),
        "result": Field("RESULT", lambda row: row.result(0)),
        "result_abbrev": Field("RS", lambda row: row.result(1)),
        "status": Field("STATUS", lambda row: row.status(0)),
        "status_abbrev": Field("ST", lambda row: row.status(1)),
        "returncode": Field("RC", lambda row: row.returncode),
        "runtime": Field("RUNTIME", lambda row: row.runtime),
        "t_remaining": Field("T_REMAINING", lambda row: row.t_remaining),
        "dependencies": Field("DEPENDENCIES", lambda row: row.dependencies),
        "explain": Field("EXPLAIN", lambda row: row.record.get("explain", "")),
        "contextual_info": Field("INFO", lambda row: row.info),
        "contextual_time": Field("TIME", lambda row: row.time),
        "inactive_reason": Field("INACTIVE-REASON", lambda row: row.inactive_reason),
        "userid": _plain("userid", "UID"),
        "urgency": _plain("urgency", "URG"),
        "waitstatus": _plain("waitstatus", "WSTATUS"),
        **{name: _plain(name) for name in _SAME_NAME},
        **{name: _annotation(name) for name in (*_ANNOTATIONS, *_ANNOTATION_HEADINGS)},
    }
)
