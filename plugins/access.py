"""access: who may use which queue and project, by user, group and bank.

    conf = {"queues": {"debug": {"users": ["alice"], "groups": ["ops"]}},
            "projects": {"fusion": {"banks": ["physics"]}}}

A queue or project that is named admits who is in any of its lists; one that is not named admits
all. The instance owner is a user like others. A job says its bank and project in its jobspec
(`--setattr=bank=physics`); the queue's own access policy, in the configuration, counts besides.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio import jobtap


class Admits(msgspec.Struct, forbid_unknown_fields=True):
    """Names; being in one of the lists is enough."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    banks: frozenset[str] = frozenset()


class Conf(msgspec.Struct, forbid_unknown_fields=True):
    """What it is loaded with."""

    queues: dict[str, Admits] = {}
    projects: dict[str, Admits] = {}


class Access(jobtap.Plugin):
    """Refuses at submission, and when a job is to be moved."""

    name = "access"

    def __init__(self) -> None:
        self._settings = Conf()

    @jobtap.on("conf.update")
    def configure(self, _config: jobtap.Config) -> None:
        """Read what it was loaded with."""
        self._settings = self.read_conf(Conf)

    @jobtap.on("job.validate")
    async def validate(self, job: jobtap.Job) -> None:
        """The queue and the project that the jobspec names."""
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
