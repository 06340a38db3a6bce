"""Steps of the recordings that no command of a client can play, and what stands for them here."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from flux_trio.broker import ModuleSpec
from flux_trio.messages import topics
from flux_trio.protocols import ACTIVE
from tests.support.other_services import (
    Answers,
    error_answer,
    execution_service,
    refusing_scheduler,
    start_answers,
)
from tests.support.recordings import Player, Recording, Special


@dataclass
class Background:
    """The scenario's helper program: an execution service that comes and goes."""

    stack: AsyncExitStack
    hellos: list[str] = field(default_factory=list)

    def comes(self, service: str, answers: Answers | None) -> Special:
        async def come(player: Player) -> None:
            service_up = execution_service(player.instance, service, answers)
            self.hellos.append(await self.stack.enter_async_context(service_up))

        return come

    async def goes(self, _player: Player) -> None:
        await self.stack.aclose()


async def nothing(_player: Player) -> None:
    """A step that only looks, or that has no counterpart here."""


async def shrink(player: Player) -> None:
    """A node that is down is subtracted from a discovered inventory: here it is excluded."""
    await player.client.call(topics.RESOURCE_EXCLUDE, {"targets": "3"})


async def crash_scheduler(player: Player) -> None:
    await player.client.call(topics.MODULE_KILL, {"name": topics.SCHED})


async def cancel_all(player: Player) -> None:
    payload = {"severity": 0, "type": "cancel", "states": int(ACTIVE)}
    await player.client.call(topics.JOB_RAISEALL, payload)


async def offer_refusing_scheduler(player: Player) -> None:
    name = "/tmp/rec/bad-sched.py"
    player.instance.supervisor.specs["bad-sched"] = ModuleSpec("bad-sched", refusing_scheduler)
    player.instance.supervisor.specs[name] = ModuleSpec("bad-sched", refusing_scheduler)
    await player.client.call(topics.MODULE_LOAD, {"name": name})


PARTIAL = start_answers(
    ("start", {}),
    ("release", {"ranks": "0", "final": False}),
    ("release", {"ranks": "1", "final": False}),
    ("release", {"ranks": "2", "final": False}),
    ("finish", {"status": 0}),
    ("release", {"ranks": "3", "final": True}),
)
WARNING = start_answers(
    ("start", {}),
    ("exception", {"severity": 1, "type": "exec", "note": "only a warning"}),
    ("finish", {"status": 0}),
    ("release", {"ranks": "0", "final": True}),
)


async def warn(player: Player) -> None:
    payload = {"severity": 1, "type": "warn", "note": "just so"}
    await player.client.call(topics.JOB_RAISE, {"id": player.ids["B"], **payload})


def rpcs(recording: Recording) -> dict[str, Special]:
    """Calls that only look or are refused, of which `test_rpc_errors` compares the answers."""
    looks = (step for step in recording.steps if step.startswith(("flux python", "flux job id")))
    return {step: warn if '\\"warn\\"' in step else nothing for step in looks}


def specials(background: Background) -> dict[str, Special]:
    """By their text in the recordings."""
    return {
        "# background: execsvc.py test-exec-ghost 1 --no-register": background.comes(
            "test-exec-ghost", None
        ),
        "# background: execsvc.py test-exec-bad 1 --error": background.comes(
            "test-exec-bad", error_answer
        ),
        "# background: execsvc.py test-exec 0.3 --partial": background.comes("test-exec", PARTIAL),
        "# background: execsvc.py test-exec2 0.3 --warn": background.comes("test-exec2", WARNING),
        "# signal 15 to background helper": background.goes,
        "# signal 9 to background helper": background.goes,
        "# helper output: hello ok": nothing,
        "# helper output: hello failed: [Errno 22] Invalid argument": nothing,
        "# instance restarted on the same statedir": nothing,
        "# kill -KILL the sched-simple module process": crash_scheduler,
        "flux overlay disconnect 3": shrink,
        "flux cancel --all": cancel_all,
        "flux module load /tmp/rec/bad-sched.py": offer_refusing_scheduler,
        "flux module debug --set 4 sched-simple": nothing,  # its way to refuse: see the test
        "flux queue disable -m 'closed for restart'": nothing,
        "flux queue enable": nothing,
    }
