"""`flux-trio run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flux_trio.cli.connection.session import with_client
from flux_trio.cli.submit.submit_options import (
    SubmitCommand,
    make_jobspec,
    print_jobspec,
    read_submission,
    run_options,
    tell_default,
    tell_ignored,
    with_input,
)
from flux_trio.cli.terminal.shown_values import shown_id

if TYPE_CHECKING:
    from flux_trio.client import Client


@click.command(cls=SubmitCommand)
@run_options
@click.option("--wait-event", metavar="NAME", help="End when the job has had this event.")
def run(
    dry_run: bool,
    jobspec_file: str | None,
    quiet: bool,
    verbose: int,
    label_io: bool,
    wait_event: str | None,
    **options: Any,
) -> None:
    """Submit a job that runs COMMAND, show its output, and end with its exit code.

    The tasks write to the standard output and standard error of this command. Without --input,
    each task also gets the standard input of this command, unless that is a terminal. Two ctrl-C
    within two seconds cancel the job; ctrl-C and then ctrl-Z detach from the job, which goes on.
    Other signals are sent to the job. If the job cannot receive SIGTERM, SIGHUP or SIGALRM, the
    signal ends this command, and the job goes on.

    Exit codes: the highest exit code of the tasks, or 128 plus the number of the signal that ended
    a task; 1 if the job is refused or never ran, 2 for wrong usage.
    """
    submission = read_submission({**options, "label_io": label_io})
    jobspec = make_jobspec(submission, jobspec_file)
    if dry_run:
        print_jobspec(jobspec.to_json())
        return
    tell_ignored(submission)
    from flux_trio.cli.follow.attach import attach
    from flux_trio.cli.follow.standard_input import input_to_forward

    stdin = None if jobspec_file == "-" else input_to_forward()

    async def send_and_follow(client: Client) -> int:
        sent = jobspec if stdin is None else with_input(jobspec)
        job = await client.submit(
            sent, urgency=submission.urgency_number(), flags=submission.flag_mask()
        )
        jobid = job.id
        if verbose and not quiet:
            click.echo(f"jobid: {shown_id(jobid)}", err=True)
        if submission.duration() == 0:
            await tell_default(job)
        return await attach(
            client, jobid, label=label_io, show_events=verbose > 1, until=wait_event, stdin=stdin
        )

    click.get_current_context().exit(with_client(send_and_follow))
