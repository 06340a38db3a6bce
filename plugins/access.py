"""access: which users may use a queue or project, by user, group and bank.

    conf = {"queues": {"debug": {"users": ["alice"], "groups": ["ops"]}},
            "projects": {"fusion": {"banks": ["physics"]}}}

A queue or project in the conf admits the users in any of its lists; one that is not in the conf
admits all users. The instance owner is a user like others. The jobspec has the bank and the project
of a job (`--setattr=bank=physics`). The queue's own access policy, in the configuration, is checked
as well.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio import jobtap


class Admits(msgspec.Struct, forbid_unknown_fields=True):
    """Names of users, groups and banks; a job needs to match only one of the lists."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    banks: frozenset[str] = frozenset()


class Conf(msgspec.Struct, forbid_unknown_fields=True):
    """The plugin's conf."""

    queues: dict[str, Admits] = {}
    projects: dict[str, Admits] = {}


class Access(jobtap.Plugin):
    """Rejects jobs at submission, and when an update moves them."""

    name = "access"

    def __init__(self) -> None:
        self._settings = Conf()

    @jobtap.on("conf.update")
    def configure(self, _config: jobtap.Config) -> None:
        """Read the conf."""
        self._settings = self.read_conf(Conf)

    @jobtap.on("job.validate")
    async def validate(self, job: jobtap.Job) -> None:
        """Check the queue and the project of the jobspec."""
        system = job.jobspec.system
        await self._check("queue", system.get("queue"), job.userid, system.get("bank"))
        await self._check("project", system.get("project"), job.userid, system.get("bank"))

    async def _check(self, kind: str, name: Any, userid: int, bank: Any) -> None:
        named = self._settings.queues if kind == "queue" else self._settings.projects
        admits = named.get(name)
        if admits is None or bank in admits.banks:
            return
        user = await self.users(userid)
        if user.name in admits.users or user.groups & admits.groups:
            return
        who = f"user {user.name}" if user.name else f"userid {userid}"
        of = f" of bank {bank}" if bank else ""
        raise jobtap.Reject(f"{who}{of} has no access to {kind} {name}")
