"""Commands against an instance of an older version, which leaves out what it does not know."""

from __future__ import annotations

import click.testing
import pytest

from flux_trio.cli import main
from tests.support.small_instance import TOKEN, run_small_instance


@pytest.mark.parametrize("args", [["jobs"], ["watch", "--active"], ["cancel", "--all"]])
def test_what_the_command_needs_and_the_instance_does_not_tell(args: list[str]) -> None:
    with run_small_instance() as instance:
        env = {"FLUX_TRIO_URI": instance.uri, "FLUX_TRIO_TOKEN": TOKEN}
        result = click.testing.CliRunner(env=env).invoke(main, args, prog_name="flux-trio")
    assert (result.exit_code, result.stdout) == (1, "")
    command = f"flux-trio {args[0]}: ERROR: "
    expected = "broker.info: expected the key requester, got level, version; if the instance at "
    assert result.stderr.startswith(f"{command}{expected}{instance.uri} is older")
    assert "Traceback" not in result.stderr
