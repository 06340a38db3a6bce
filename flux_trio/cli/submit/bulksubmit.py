"""`flux-trio bulksubmit`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from flux_trio.cli.submit.submit_options import SubmitCommand, bulksubmit_options, read_submission
from flux_trio.cli.terminal.errors import CommandError

if TYPE_CHECKING:
    from flux_trio.cli.submit.submission import Submission

_SHORT: Final = {  # how an option is shown, if not by its long name
    "nodes": "-N",
    "ntasks": "-n",
    "cores_per_task": "-c",
    "gpus_per_task": "-g",
    "time_limit": "-t",
    "queue": "-q",
    "bank": "-B",
    "setopt": "-o ",
}


@click.command(cls=SubmitCommand)
@bulksubmit_options
@click.option(
    "--define",
    "definitions",
    multiple=True,
    metavar="NAME=CODE",
    help="Define {.NAME} as the value of the Python expression CODE, in which x is the input.",
)
@click.option("--shuffle", is_flag=True, help="Submit in random order.")
@click.option(
    "--sep",
    "separator",
    default="\\n",
    metavar="STRING",
    help="The separator of inputs in files; the word none means any white space. "
    "[default: the end of a line]",
)
def bulksubmit(
    dry_run: bool, definitions: tuple[str, ...], shuffle: bool, separator: str, **options: Any
) -> None:
    """Submit COMMAND once for each input; the input replaces {} in options and COMMAND.

    Inputs are the lines of standard input, the words after :::, or the lines of a file after ::::.
    With several lists, each combination of inputs is one job, and {0}, {1} and so on are its
    inputs. A list after :::+ makes no combinations: its inputs are taken in step with the other
    lists. {seq} and {seq1} number the jobs from 0 and from 1. {.%} is the input without its
    extension, {./} its base name, {.//} its directory.

    Exit codes: 0, 1 if a job is refused, 2 for wrong usage; with --wait or --watch the highest exit
    code of the jobs.
    """
    submission = read_submission(options)
    try:
        jobs = list(_submissions(submission, definitions, separator))
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise CommandError(str(error)) from None
    if shuffle:
        import random

        random.shuffle(jobs)
    from flux_trio.cli.submit.bulk import BulkOptions, copies, submit_all

    bulk = BulkOptions(**options)
    all_copies = [copy for job in jobs for copy in copies(job)]
    if not all_copies:
        raise CommandError("no jobs provided for bulk submission")
    if dry_run and bulk.progress:
        click.echo(f"bulksubmit: submitting a total of {len(all_copies)} jobs")
    if dry_run or bulk.verbose:
        for job in jobs:
            click.echo(f"bulksubmit: submit {_shown(submission, job)}")
    if not dry_run:
        click.get_current_context().exit(submit_all(all_copies, bulk))


def _submissions(
    template: Submission, definitions: tuple[str, ...], separator: str
) -> Iterator[Submission]:
    """Yield one submission for each combination of inputs. Raises ValueError, OSError."""
    from dataclasses import replace

    from flux_trio.cli.submit.bulk_inputs import split_inputs, split_text
    from flux_trio.cli.submit.replacing import Input, compile_methods, replaced

    def read(path: str) -> list[str]:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
        return split_text(text, separator)

    methods = compile_methods(definitions)
    command, jobs = split_inputs(template.command, read)
    template = replace(template, command=command)
    for number, texts in enumerate(jobs):
        inputs = [Input(text, methods) for text in texts]
        # {cc} is replaced when the copies are made
        names = {"seq": number, "seq1": number + 1, "cc": "{cc}"}
        yield replaced(template, inputs, names)


def _shown(template: Submission, job: Submission) -> str:
    """Return the options that the inputs have changed, then the command."""
    from dataclasses import fields

    words = []
    for field in fields(job):
        value = getattr(job, field.name)
        if field.name == "command" or not value:
            continue
        if value != getattr(template, field.name) or field.name == "cc":
            option = _SHORT.get(field.name, f"--{field.name.replace('_', '-')}=")
            words += [option + text for text in ((value,) if isinstance(value, str) else value)]
    return " ".join([*words, *job.command])
