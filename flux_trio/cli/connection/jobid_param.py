"""The click type of job ids: a shell completes the ids of the user's own active jobs."""

from __future__ import annotations

from typing import Final

from click.shell_completion import CompletionItem

from flux_trio.cli.connection.completing import OFFERED_MAX, ask
from flux_trio.cli.terminal.params import Parsed

# What reads and finds ids is imported when it is needed: `--help` must be quick.


def _jobid(text: str) -> int:
    from flux_trio.formats import parse_fluid

    return parse_fluid(text)


def active_jobids(incomplete: str) -> list[CompletionItem]:
    """Offer ids that begin with `incomplete`, with their jobs' names; none without an instance."""
    from flux_trio.cli.connection.job_query import JobQuery
    from flux_trio.formats import FluidForm, format_fluid
    from flux_trio.process.console import id_form
    from flux_trio.protocols import ACTIVE

    form: FluidForm = "f58plain" if incomplete.startswith("f") else id_form()
    query = JobQuery(states=int(ACTIVE), userid=None, count=OFFERED_MAX)
    jobs = ask(query.fetch)
    found = [(format_fluid(job["id"], form), job.get("name", "")) for job in jobs]
    return [CompletionItem(text, help=name) for text, name in found if text.startswith(incomplete)]


JOBID: Final = Parsed("jobid", _jobid, active_jobids)
