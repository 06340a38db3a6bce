"""`flux-trio attach sched` without a broker; what it does with one is in tests/attach."""

from __future__ import annotations

from pathlib import Path

import click.testing
import pytest

from flux_trio.cli import main


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("local://{}/local", "local://{}/local: No such file or directory"),
        ("ws://{}", "ws://{}: expected local://PATH, or fd://N for an open socket, of a broker of"),
    ],
)
def test_broker_that_is_not_there_is_named(tmp_path: Path, uri: str, text: str) -> None:
    runner = click.testing.CliRunner(env={"FLUX_LOCAL_CONNECTOR_RETRY_COUNT": "0"})
    args = ["attach", "sched", "--policy", "fifo", "--to", uri.format(tmp_path)]
    done = runner.invoke(main, args, prog_name="flux-trio")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"flux-trio attach sched: ERROR: {text.format(tmp_path)}")
