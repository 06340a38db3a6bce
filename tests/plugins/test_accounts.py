"""Accounts: the database, its command, and fair share."""

from __future__ import annotations

import json
import pwd
from pathlib import Path

import accounts
import click.testing
import msgspec
import multifactor
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multifactor import Conf, Weights


def command(database: Path, *args: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(accounts.main, [str(database), *args])


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Two banks: physics has three quarters and two users, biology one."""
    path = tmp_path / "site.db"
    for args in (
        ("bank", "physics", "shares=3"),
        ("bank", "biology", "shares=1"),
        ("user", "ann", "bank=physics", "userid=1001"),
        ("user", "bob", "bank=physics", "userid=1002", "shares=2"),
        ("user", "eve", "bank=biology", "userid=1003", "max_nodes=4"),
    ):
        assert command(path, "set", *args).output == ""
    return path


class TestCommand:
    def test_help_has_the_defaults(self, database: Path) -> None:
        told = " ".join(command(database, "--help").output.split())
        weights = Weights()
        for name in ("fairshare", "queue", "bank", "urgency"):
            assert f"{name} {getattr(weights, name):g}" in told
        conf = Conf(database="")
        assert f"interval {conf.interval:g} and half-life {int(conf.half_life)} seconds" in told
        page = " ".join((multifactor.__doc__ or "").split())
        assert f"(default {conf.interval:g}: seconds between" in page
        assert f"(default {int(conf.half_life)}: seconds after" in page

    def test_queue_that_is_added_says_who_its_members_are(self, database: Path) -> None:
        said = command(database, "set", "queue", "debug").output
        assert said == (
            "queue debug is for members only: `set user NAME queues=debug` makes a user a member\n"
        )

    def test_what_was_set_is_read_and_shown(self, database: Path) -> None:
        read = accounts.Accounts.read(database)
        assert read.users[1003, "biology"].max_nodes == 4
        assert read.find(1001, None) is read.users[1001, "physics"]
        rows = [json.loads(line) for line in command(database, "show").output.splitlines()]
        assert [(row["table"], row["name"]) for row in rows] == [
            ("bank", "physics"),
            ("bank", "biology"),
            ("user", "ann"),
            ("user", "bob"),
            ("user", "eve"),
        ]

    def test_a_value_of_none_is_no_limit(self, database: Path) -> None:
        command(database, "set", "user", "eve", "bank=biology", "userid=1003", "max_nodes=none")
        assert accounts.Accounts.read(database).users[1003, "biology"].max_nodes is None

    def test_user_who_is_there_is_changed_without_bank_and_userid(self, database: Path) -> None:
        before = accounts.Accounts.read(database).users[1003, "biology"]
        assert command(database, "set", "user", "eve", "max_active_jobs=2").output == ""
        after = accounts.Accounts.read(database).users[1003, "biology"]
        assert after == msgspec.structs.replace(before, max_active_jobs=2)

    def test_user_in_a_further_bank_has_the_same_userid(self, database: Path) -> None:
        assert command(database, "set", "user", "eve", "bank=physics").output == ""
        assert (1003, "physics") in accounts.Accounts.read(database).users

    def test_userid_of_a_new_user_is_looked_up(self, database: Path) -> None:
        name = pwd.getpwuid(0).pw_name
        assert command(database, "set", "user", name, "bank=physics").output == ""
        assert accounts.Accounts.read(database).users[0, "physics"].name == name

    @pytest.mark.parametrize(
        ("args", "text"),
        [
            (("no such user", "bank=physics"), "expected userid=ID, since this machine knows no"),
            (("al", "userid=7"), "user al: expected bank=BANK, since the user is in no bank yet"),
            (
                ("eve", "shares=2"),
                "user eve: expected bank=BANK, since the user is in biology, phys",
            ),
        ],
    )
    def test_what_cannot_be_known_of_a_user_has_to_be_said(
        self, database: Path, args: tuple[str, ...], text: str
    ) -> None:
        command(database, "set", "user", "eve", "bank=physics")
        before = accounts.Accounts.read(database)
        result = command(database, "set", "user", *args)
        assert (result.exit_code, text in result.output) == (1, True), result.output
        assert accounts.Accounts.read(database) == before

    def test_a_deleted_user_is_gone(self, database: Path) -> None:
        command(database, "delete", "user", "eve")
        assert accounts.Accounts.read(database).find(1003, None) is None

    @pytest.mark.parametrize(
        ("args", "text"),
        [
            (("user", "al", "bank=art", "userid=7"), "user al: there is no bank art"),
            (("user", "al", "bank=physics", "userid=x"), "Expected `int`, got `str`"),
            (("user", "al", "bank=physics"), "this machine knows no user of that name"),
            (("bank", "physics", "parent=physics"), "its parents do not lead to root"),
            (("bank", "physics", "share=2"), "KEY one of parent, shares, priority: got share=2"),
        ],
    )
    def test_what_makes_no_sense_is_refused_and_changes_nothing(
        self, database: Path, args: tuple[str, ...], text: str
    ) -> None:
        before = command(database, "show").output
        result = command(database, "set", *args)
        assert result.exit_code == 1
        assert text in result.output
        assert command(database, "show").output == before


class TestFairShare:
    def test_who_used_least_of_its_share_comes_first(self, database: Path) -> None:
        read = accounts.Accounts.read(database)
        ann, bob, eve = (read.find(userid, None) for userid in (1001, 1002, 1003))
        assert ann is not None
        assert bob is not None
        assert eve is not None
        ann.usage, bob.usage, eve.usage = 100.0, 100.0, 500.0
        accounts.set_fair_shares(read, 0.0, 86400.0)
        assert [bob.fair_share, ann.fair_share, eve.fair_share] == [1, 2 / 3, 1 / 3]

    def test_nobody_used_anything_all_rank_alike(self, database: Path) -> None:
        read = accounts.Accounts.read(database)
        accounts.set_fair_shares(read, 0.0, 86400.0)
        assert {user.fair_share for user in read.users.values()} == {1.0}

    def test_usage_counts_half_after_a_half_life(self, database: Path) -> None:
        user = accounts.Accounts.read(database).users[1001, "physics"]
        user.usage, user.usage_at = 80.0, 1000.0
        assert user.usage_now(1000.0 + 2 * 50.0, half_life=50.0) == 20.0

    def test_a_user_is_owed_its_part_of_its_banks_part(self, database: Path) -> None:
        owed = accounts.Accounts.read(database).owed()
        assert owed == pytest.approx({"1001": 0.25, "1002": 0.5, "1003": 0.25})

    @settings(max_examples=50)
    @given(
        st.lists(
            st.tuples(st.integers(0, 3), st.sampled_from([0.5, 3.0]), st.floats(0.0, 1e6)),
            min_size=1,
        )
    )
    def test_more_usage_never_ranks_a_user_higher(
        self, rows: list[tuple[int, float, float]]
    ) -> None:
        """Within a bank, of two with the same shares."""
        banks = {str(n): accounts.Bank(str(n), "root", 1.0, 0.0) for n in range(4)}
        users = {}
        for place, (bank, shares, usage) in enumerate(rows):
            user = association(place, str(bank), shares, usage)
            users[user.userid, user.bank] = user
        read = accounts.Accounts(banks, users)
        accounts.set_fair_shares(read, 0.0, 1.0)
        for one in users.values():
            assert 0.0 < one.fair_share <= 1.0
            for other in users.values():
                alike = (one.bank, one.shares) == (other.bank, other.shares)
                if alike and one.usage < other.usage:
                    assert one.fair_share >= other.fair_share


def association(userid: int, bank: str, shares: float, usage: float) -> accounts.Association:
    """A user with usage, and no limits."""
    none = dict.fromkeys(("max_active_jobs", "max_running_jobs", "max_nodes", "max_cores"), None)
    return accounts.Association(
        name=str(userid),
        bank=bank,
        userid=userid,
        shares=shares,
        is_default=1,
        active=1,
        queues="",
        projects="",
        default_project="",
        usage=usage,
        usage_at=0.0,
        **none,
    )
