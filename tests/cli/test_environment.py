from __future__ import annotations

import pytest

from flux_trio.cli.submit.environment import job_environment

CURRENT = {"HOME": "/h", "PATH": "/bin", "OMP_A": "1", "OMP_B": "2"}


def test_variables_that_are_not_utf_8_are_left_out() -> None:
    latin_1 = {"NAME": "caf\udce9", "\udce9": "1"}
    assert job_environment([], CURRENT | latin_1) == (CURRENT, {})


@pytest.mark.parametrize(
    ("rules", "environment"),
    [
        ([], CURRENT),
        (["X=1"], {**CURRENT, "X": "1"}),
        (["X="], {**CURRENT, "X": ""}),
        (["-*"], {}),
        (["-OMP_*"], {"HOME": "/h", "PATH": "/bin"}),
        (["-/^(OMP|HOME)/"], {"PATH": "/bin"}),
        (["-*", "HOME", "X=y"], {"HOME": "/h", "X": "y"}),
        (["-*", "PATH=/x", "P*"], {"PATH": "/x"}),
        (["PATH=$PATH:/opt", "PATH=$PATH:${HOME}"], {**CURRENT, "PATH": "/bin:/opt:/h"}),
        (["-*", "X=$HOME"], {"X": "/h"}),
        (["X=$$"], {**CURRENT, "X": "$"}),
    ],
)
def test_rules_apply_in_their_order(rules: list[str], environment: dict[str, str]) -> None:
    assert job_environment(rules, CURRENT) == (environment, {})


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("X=$NOSUCH", "'X=$NOSUCH': there is no variable 'NOSUCH'"),
        ("=x", "'=x': expected NAME=VALUE"),
        ("-/(/", "'-/(/'"),
        ("X=$", "'X=$': Invalid placeholder"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_named(rule: str, message: str) -> None:
    with pytest.raises(ValueError) as info:  # noqa: PT011 - the text is checked
        job_environment([rule], CURRENT)
    assert message in str(info.value)


def test_the_token_of_this_command_is_not_the_jobs() -> None:
    secret = {"FLUX_TRIO_TOKEN": "t", "FLUX_TRIO_URI": "ws://h:1"}
    assert job_environment(["FLUX_TRIO_TOKEN"], CURRENT | secret) == (CURRENT, {})


def test_what_has_tags_is_left_to_the_job() -> None:
    rules = ["-*", "A={{id}}", "B=x"]
    assert job_environment(rules, CURRENT) == ({"B": "x"}, {"A": "{{id}}"})
