"""accounts: the users, banks and queues of the multifactor plugin, and their fair share.

They are in a SQLite database, which this file also edits:

    python accounts.py site.db set bank physics shares=10
    python accounts.py site.db set user alice bank=physics
    python accounts.py site.db set user alice max_running_jobs=2
    python accounts.py site.db show

A user in a bank is an association. Fair share is the rank of an association among all, from 0 to 1.
The ranks come from a walk through the tree of banks: at each node, the child that has used the
smallest part of its share comes first.
"""

from __future__ import annotations

import itertools
import math
import pwd
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

ROOT: Final = "root"
NEW_FAIR_SHARE: Final = 0.5  # until the first calculation
UNREADABLE: Final = (sqlite3.Error, OSError, ValueError)  # locked, missing or inconsistent

TABLES: Final = {
    "bank": "name TEXT PRIMARY KEY, parent TEXT NOT NULL DEFAULT 'root', "
    "shares REAL NOT NULL DEFAULT 1, priority REAL NOT NULL DEFAULT 0",
    "user": "name TEXT, bank TEXT, userid INTEGER NOT NULL, shares REAL NOT NULL DEFAULT 1, "
    "is_default INTEGER NOT NULL DEFAULT 1, active INTEGER NOT NULL DEFAULT 1, "
    "max_active_jobs INTEGER, max_running_jobs INTEGER, max_nodes INTEGER, max_cores INTEGER, "
    "queues TEXT NOT NULL DEFAULT '', projects TEXT NOT NULL DEFAULT '', "
    "default_project TEXT NOT NULL DEFAULT '', usage REAL NOT NULL DEFAULT 0, "
    "usage_at REAL NOT NULL DEFAULT 0, PRIMARY KEY (name,bank)",
    "queue": "name TEXT PRIMARY KEY, priority REAL NOT NULL DEFAULT 0, "
    "max_running_jobs INTEGER, max_nodes INTEGER",
}
"""A user's queues and projects are names separated by commas; NULL means no limit."""


@contextmanager
def open_database(path: Path, wait_s: float = 5.0) -> Iterator[sqlite3.Connection]:
    """Open the database, and create it if it does not exist; the block is one transaction.

    Raises sqlite3.Error, also if another process locks it for longer than `wait_s`.
    """
    with closing(sqlite3.connect(path, timeout=wait_s)) as connection, connection:
        connection.row_factory = sqlite3.Row
        for table, columns in TABLES.items():
            connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
        yield connection


class Bank(msgspec.Struct):
    """A bank; its users and child banks divide its part by their shares."""

    name: str
    parent: str
    shares: float
    priority: float


class Association(msgspec.Struct):
    """A user in a bank. A limit of None means no limit; usage is in node-seconds at `usage_at`."""

    name: str
    bank: str
    userid: int
    shares: float
    is_default: int
    active: int
    max_active_jobs: int | None
    max_running_jobs: int | None
    max_nodes: int | None
    max_cores: int | None
    queues: str
    projects: str
    default_project: str
    usage: float
    usage_at: float
    fair_share: float = NEW_FAIR_SHARE

    def usage_now(self, now: float, half_life: float) -> float:
        """Return the decayed usage at `now`, in seconds since the Unix epoch."""
        return self.usage * math.pow(0.5, max(0.0, now - self.usage_at) / half_life)

    def charge(self, used: float, now: float, half_life: float) -> None:
        """Add node-seconds to the usage."""
        self.usage = self.usage_now(now, half_life) + used
        self.usage_at = now

    def project_problem(self, project: Any) -> str | None:
        """Return why the user may not use a project; None if they may."""
        if project is None or project in _names(self.projects):
            return None
        return f'project "{project}" not valid for user; valid projects for user: {self.projects}'


class Queue(msgspec.Struct):
    """The priority factor of a queue, and its limits for each association."""

    name: str
    priority: float
    max_running_jobs: int | None
    max_nodes: int | None


class Size(NamedTuple):
    """The size of a job, for limits, and its queue."""

    nnodes: int
    ncores: int
    queue: str


def beyond(value: float, limit: int | None) -> bool:
    """Return whether `value` exceeds a limit; None is no limit."""
    return limit is not None and value > limit


def room_text(*counts: tuple[float, int | None]) -> str:
    """Return in words how many jobs and how many nodes there are, each with its limit."""
    jobs, nodes = (f"{n:g} of {'any number of' if most is None else most}" for n, most in counts)
    return f"{jobs} jobs that may run, on {nodes} nodes"


def _names(text: str) -> list[str]:
    return [each for each in text.split(",") if each]


@dataclass
class Accounts:
    """The contents of the database."""

    banks: dict[str, Bank] = field(default_factory=dict)
    users: dict[tuple[int, str], Association] = field(default_factory=dict)  # by userid and bank
    default_bank: dict[int, str] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    changed_at: float = 0.0  # modification time of the database when it was read

    @classmethod
    def read(cls, path: Path) -> Accounts:
        """Read the database. Raises one of UNREADABLE, also if it is locked."""
        with open_database(path, wait_s=0.0) as database:
            found = cls.of(database)
        found.changed_at = path.stat().st_mtime
        return found

    def are_old(self, path: Path) -> bool:
        """Return whether the database was edited since it was read. Raises OSError."""
        return path.stat().st_mtime != self.changed_at

    @classmethod
    def of(cls, database: sqlite3.Connection) -> Accounts:
        """Read an open database. Raises ValueError if its contents are inconsistent."""
        rows = {
            table: [dict(row) for row in database.execute(f"SELECT * FROM {table}")]
            for table in TABLES
        }
        banks = msgspec.convert(rows["bank"], list[Bank])
        users = msgspec.convert(rows["user"], list[Association])
        queues = msgspec.convert(rows["queue"], list[Queue])
        accounts = cls(
            {bank.name: bank for bank in banks},
            {(user.userid, user.bank): user for user in users},
            queues={queue.name: queue for queue in queues},
        )
        for user in users:
            if user.is_default or user.userid not in accounts.default_bank:
                accounts.default_bank[user.userid] = user.bank
        if len(accounts.users) < len(users):
            raise ValueError("two users in a bank have one userid")
        accounts._check_tree()
        accounts._check_numbers()
        return accounts

    def _check_numbers(self) -> None:
        """Raises ValueError if shares or a limit are not a number from 0."""
        rows: list[Bank | Association | Queue] = [*self.banks.values(), *self.users.values()]
        for row in [*rows, *self.queues.values()]:
            for name, value in msgspec.structs.asdict(row).items():
                counts = name == "shares" or name.startswith("max_")
                if counts and value is not None and not 0 <= value < math.inf:
                    raise ValueError(f"{row.name}: expected {name} from 0, got {value}")

    def _check_tree(self) -> None:
        """Raises ValueError for a bank that does not exist, or is below itself."""
        known = self.banks.keys() | {ROOT}
        for user in self.users.values():
            if user.bank not in known:
                raise ValueError(f"user {user.name}: there is no bank {user.bank}")
        for name in self.banks:
            path = [name]
            while path[-1] != ROOT:
                bank = self.banks.get(path[-1])
                if bank is None or bank.parent in path:
                    raise ValueError(f"bank {name}: its parents do not lead to {ROOT}: {path}")
                path.append(bank.parent)

    def owed(self) -> dict[str, float]:
        """Return each user's share of the machine by userid, in all banks together."""
        parts: dict[str, float] = {}
        for user in self.users.values():
            siblings = [each for each in self.users.values() if each.bank == user.bank]
            part = user.shares / (sum(each.shares for each in siblings) or 1.0)
            owed = part * self._part_of(user.bank)
            parts[str(user.userid)] = parts.get(str(user.userid), 0.0) + owed
        return parts

    def _part_of(self, name: str) -> float:
        """Return a bank's part of the machine; an unknown bank counts as the root."""
        bank = self.banks.get(name)
        if bank is None or name == ROOT:
            return 1.0
        siblings = [
            each for each in self.banks.values() if each.name != ROOT and each.parent == bank.parent
        ]
        part = bank.shares / (sum(each.shares for each in siblings) or 1.0)
        return part * self._part_of(bank.parent)

    def find(self, userid: int, bank: str | None) -> Association | None:
        """Return the association of a job; without a bank, that of the user's default bank."""
        return self.users.get((userid, bank or self.default_bank.get(userid, "")))

    def keep_usage(self, before: Accounts) -> None:
        """Take over the usage that has changed since it was recorded."""
        for key, old in before.users.items():
            user = self.users.get(key)
            if user is not None and old.usage_at > user.usage_at:
                user.usage, user.usage_at = old.usage, old.usage_at

    # --- what is refused, however long a job would wait

    def queue_problem(self, user: Association, queue: str | None) -> str | None:
        """Return why the user may not use a queue; None if they may."""
        if queue not in self.queues or queue in _names(user.queues):
            return None
        text = f'queue "{queue}" not valid for user; valid queues for user: {user.queues}'
        return f"{text} (the accounts have this queue, so it is for members only)"

    def size_problem(self, user: Association, size: Size) -> str | None:
        """Return the limit of the queue or of the user that a job alone exceeds, if it does."""
        queue = self.queues.get(size.queue)
        if queue is not None and beyond(size.nnodes, queue.max_nodes):
            return (
                f"job size ({size.nnodes} node(s)) is greater than max resources limit "
                f"configured for queue ({queue.max_nodes} node(s))"
            )
        if not beyond(size.nnodes, user.max_nodes) and not beyond(size.ncores, user.max_cores):
            return None
        nodes, cores = (
            "unlimited" if each is None else each for each in (user.max_nodes, user.max_cores)
        )
        return (
            f"job size ({size.nnodes} node(s), {size.ncores} core(s)) is greater than max "
            f"resources limits configured for association ({nodes} node(s), {cores} core(s))"
        )


# --- fair share


class Node:
    """A bank or user in the tree; `weight` is its part of shares divided by its part of usage."""

    def __init__(self, shares: float, usage: float, user: Association | None = None) -> None:
        self.shares = shares
        self.usage = usage
        self.user = user
        self.children: list[Node] = []
        self.weight = 0.0

    def weigh(self) -> float:
        """Set the weights of all descendants; return the usage including theirs."""
        for child in self.children:
            self.usage += child.weigh()
        shares = sum(child.shares for child in self.children) or 1.0
        for child in self.children:
            part = child.shares / shares
            used = child.usage / self.usage if self.usage else 0.0
            child.weight = part / used if used else math.inf
        return self.usage


def set_fair_shares(accounts: Accounts, now: float, half_life: float) -> None:
    """Rank all users by a walk through the tree, highest weight first; ties share a rank."""
    nodes = {name: Node(bank.shares, 0.0) for name, bank in accounts.banks.items()}
    root = nodes[ROOT] = nodes.get(ROOT, Node(1.0, 0.0))
    for name, bank in accounts.banks.items():
        if name != ROOT:
            nodes.get(bank.parent, root).children.append(nodes[name])
    for user in accounts.users.values():
        leaf = Node(user.shares, user.usage_now(now, half_life), user)
        nodes.get(user.bank, root).children.append(leaf)
    root.weigh()
    left = total = len(accounts.users)
    for tied in _walk(root.children):
        for each in tied:
            each.fair_share = left / total
        left -= len(tied)


def _walk(siblings: list[Node]) -> Iterator[list[Association]]:
    """Yield groups of users with the same rank, best first; tied banks are walked as one."""
    ordered = sorted(siblings, key=lambda node: -node.weight)
    for _, group in itertools.groupby(ordered, key=lambda node: node.weight):
        tied = list(group)
        users = [node.user for node in tied if node.user is not None]
        if users:
            yield users
        yield from _walk([child for node in tied for child in node.children])


def usage_to_record(accounts: Accounts) -> list[tuple[float, float, str, str, float]]:
    """Return the usage of all users, in the form of `record_usage`."""
    return [(u.usage, u.usage_at, u.name, u.bank, u.usage_at) for u in accounts.users.values()]


def record_usage(path: Path, usage: list[tuple[float, float, str, str, float]]) -> None:
    """Write the usage to the database, for the next start of the plugin."""
    with open_database(path) as database:
        database.executemany(
            "UPDATE user SET usage = ?, usage_at = ? WHERE name = ? AND bank = ? AND usage_at < ?",
            usage,
        )


# --- the command


@click.group()
@click.argument("database", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_context
def main(context: click.Context, database: Path) -> None:
    """Edit the DATABASE of accounts; create it if it does not exist.

    Defaults of a new row. bank: parent root, shares 1, priority 0. user: shares 1, is_default 1,
    active 1, no limits, no queues and no projects. queue: priority 0, no limits; it is for members
    only.

    Defaults of the plugin multifactor. weights: fairshare 100000, queue 10000, bank 0, urgency
    1000; interval 15 and half-life 604800 seconds.
    """
    context.obj = database


@main.command("set")
@click.argument("table", type=click.Choice(list(TABLES)))
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="KEY=VALUE ...")
@click.pass_obj
def set_row(path: Path, table: str, name: str, settings: tuple[str, ...]) -> None:
    """Add or change a row; the VALUE none means no limit.

    For a user who exists, the userid may be left out, and the bank too if there is only one. The
    userid of a new user is looked up by NAME.

    A queue in the database is for members only: users who have it among their queues. A queue that
    is not there is for all users.
    """
    values: dict[str, str | None] = {"name": name}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or key not in _columns(table):
            known = ", ".join(_columns(table))
            raise click.ClickException(f"expected KEY=VALUE, KEY one of {known}: got {setting}")
        values[key] = None if value == "none" else value
    with _editing(path) as database:
        if table == "user":
            _complete_user(database, name, values)
        keys, marks = ", ".join(values), ", ".join("?" * len(values))
        primary = "name, bank" if table == "user" else "name"
        changes = ", ".join(f"{key} = excluded.{key}" for key in values)
        database.execute(
            f"INSERT INTO {table} ({keys}) VALUES ({marks}) "
            f"ON CONFLICT ({primary}) DO UPDATE SET {changes}",
            list(values.values()),
        )
    if table == "queue":
        members = f"set user NAME queues={name}"
        click.echo(f"queue {name} is for members only: `{members}` makes a user a member", err=True)


@main.command("delete")
@click.argument("table", type=click.Choice(list(TABLES)))
@click.argument("name")
@click.option("--bank", help="Delete a user only in this bank.")
@click.pass_obj
def delete_row(path: Path, table: str, name: str, bank: str | None) -> None:
    """Delete a row; a user is deleted in every bank, or only in --bank."""
    if bank is not None and table != "user":
        raise click.ClickException(f"--bank is only for users, got {table}")
    with _editing(path) as database:
        if bank is None:
            database.execute(f"DELETE FROM {table} WHERE name = ?", [name])
        else:
            database.execute("DELETE FROM user WHERE name = ? AND bank = ?", [name, bank])


@main.command()
@click.pass_obj
def show(path: Path) -> None:
    """Print every table as JSON lines."""
    with open_database(path) as database:
        for table in TABLES:
            for row in database.execute(f"SELECT * FROM {table}"):
                click.echo(msgspec.json.encode({"table": table} | dict(row)).decode())


@contextmanager
def _editing(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database for changes; if it is inconsistent after the block, nothing changes.

    Raises ClickException for that, and for errors of the database.
    """
    try:
        with open_database(path) as database:
            yield database
            Accounts.of(database)
    except (sqlite3.Error, ValueError) as error:
        raise click.ClickException(f"{path}: {error}") from None


def _complete_user(database: sqlite3.Connection, name: str, values: dict[str, str | None]) -> None:
    """Add bank and userid to the `values` of a user. Raises ClickException if unknown."""
    rows = database.execute("SELECT bank, userid FROM user WHERE name = ?", [name]).fetchall()
    banks = [row["bank"] for row in rows]
    if "bank" not in values and len(banks) == 1:
        values["bank"] = banks[0]
    elif "bank" not in values:
        why = f"the user is in {', '.join(banks)}" if banks else "the user is in no bank yet"
        raise click.ClickException(f"user {name}: expected bank=BANK, since {why}")
    if "userid" not in values:
        values["userid"] = str(rows[0]["userid"] if rows else _userid_of(name))


def _userid_of(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        text = f"user {name}: expected userid=ID, since this machine knows no user of that name"
        raise click.ClickException(text) from None


def _columns(table: str) -> list[str]:
    return [column.split()[0] for column in TABLES[table].split(", ") if " (" not in column][1:]


if __name__ == "__main__":
    main()
