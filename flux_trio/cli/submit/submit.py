"""`flux-trio submit`."""

from __future__ import annotations

from typing import Any

import click

from flux_trio.cli.submit.submit_options import (
    SubmitCommand,
    print_jobspec,
    read_submission,
    submit_options,
)


@click.command(cls=SubmitCommand)
@submit_options
def submit(dry_run: bool, jobspec_file: str | None, **options: Any) -> None:
    """Submit a job that runs COMMAND, and print its id.

    With --cc or --bcc, submit one copy for each id; {cc} in options and COMMAND is the copy's id.

    Exit codes: 0 once the job is accepted and stored, 1 if it is refused, 2 for wrong usage; with
    --wait or --watch the highest exit code of the jobs.
    """
    submission = read_submission(options)
    from flux_trio.cli.submit.bulk import BulkOptions, copies, submit_all

    jobs = copies(submission, jobspec_file)
    if dry_run:
        print_jobspec(jobs[0].jobspec())
    else:
        click.get_current_context().exit(submit_all(jobs, BulkOptions(**options)))
