"""Arguments of modules: each changes the configuration of one module, or says that it does not."""

from __future__ import annotations

import pytest

from flux_trio.config import Config, with_arguments
from flux_trio.formats import FormatError


def test_each_argument_stands_above_the_configuration() -> None:
    resource, _ = with_arguments(Config(), "resource", ["noverify"])
    assert resource.resource.core_mode == "ignore"
    sched, _ = with_arguments(Config(), "sched", ["mode=limited=3"])
    assert (sched.sched.mode, sched.sched.limit) == ("limited", 3)
    sched, _ = with_arguments(sched, "sched", ["mode=unlimited"])
    assert sched.sched.mode == "unlimited"
    execution, _ = with_arguments(Config(), "job-exec", ["kill-timeout=0.5m"])
    assert execution.exec.kill_timeout == "0.5m"
    for argument, asks in (
        ("validator-plugins=jobspec", False),
        ("validator-plugins=jobspec,feasibility", True),
        ("disable-validator", False),
    ):
        ingest, _ = with_arguments(Config(), "job-ingest", [argument])
        assert ingest.ingest.validator.asks_feasibility is asks
    assert with_arguments(Config(), "job-list", []) == (Config(), [])


def test_what_has_nothing_to_change_says_so() -> None:
    config, remarks = with_arguments(Config(), "resource", ["notruncate"])
    assert config == Config()
    assert remarks == ["notruncate changes nothing: no event of the resource eventlog is dropped"]


@pytest.mark.parametrize(
    ("module", "argument", "said"),
    [
        ("resource", "badoption", "expected one of monitor-force-up, notruncate, noverify"),
        ("resource", "noverify=1", "expected no value"),
        ("sched", "mode=limited=0", "expected unlimited or limited=N, got "),
        ("sched", "mode=limited=\u00b2", "expected unlimited or limited=N"),
        ("sched", "mode=unlimited=1", "expected unlimited or limited=N"),
        ("job-exec", "kill-timeout=soon", "soon"),
        ("job-list", "x", "job-list: expected no arguments"),
    ],
)
def test_another_argument_is_refused_with_what_was_expected(
    module: str, argument: str, said: str
) -> None:
    with pytest.raises(FormatError, match=said):
        with_arguments(Config(), module, [argument])
