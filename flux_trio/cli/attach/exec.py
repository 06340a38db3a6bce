"""`flux-trio attach exec`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from flux_trio.cli.attach.serving import TO, serve_until_signal
from flux_trio.cli.terminal.errors import remark


@click.command()
@TO
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the processes of jobs in DIR, and take up those that run there. "
    "[default: flux-trio-exec in the broker's statedir]",
)
def exec(to: str | None, directory: Path | None) -> None:  # noqa: A001
    """Run the jobs of a live flux-core, until SIGTERM or ctrl-C.

    It takes the place of job-exec, which must not have a job under way. All processes run on this
    machine, whatever nodes a job has. They go on when this command ends, however it ends; the next
    one takes them up. `flux module reload job-exec` gives the place back.

    Exit codes: 0 after SIGTERM or ctrl-C, 1 if flux-core refuses or the broker or its job manager
    has left, 2 for wrong usage.
    """
    from flux_trio.attach.exec.run import run

    def tell(directory: Path) -> None:
        remark(f"runs jobs; their processes are kept in {directory}")

    serve_until_signal(to, "exec", partial(run, directory=directory, on_ready=tell))
