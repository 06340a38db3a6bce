"""45: what RPCs answer that are malformed or out of place, ours and those of flux-core 0.88."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import trio

from flux_trio.config import Config, ExecConfig
from flux_trio.formats import ResourceSet
from flux_trio.instance import Surroundings, open_instance
from flux_trio.messages import Flag, FluxError, Request
from tests.support.recordings import Player, StepInfo, load_recording


async def nothing(_player: Player) -> None:
    """A step that is left out."""


class Caller(Player):
    """Plays a scenario, and keeps the answer to each RPC that it makes by itself."""

    def __init__(self) -> None:
        super().__init__(load_recording("45"), lambda jobspec: jobspec, {WAITS_FOR_EVER: nothing})
        self.answers: dict[str, tuple[str, str]] = {}  # ours and theirs, by topic and payload

    async def _play_step(self, words: list[str], info: StepInfo) -> None:
        match words:
            case ["flux", "job", "id", *_]:
                pass  # only to write the ids that follow
            case ["flux", "python", "/tmp/rec/rpc.py", *arguments]:
                await self._call(arguments, info.stdout.splitlines()[-1:])
            case _:
                await super()._play_step(words, info)

    async def _call(self, arguments: list[str], recorded: list[str]) -> None:
        topic, *payloads = [each for each in arguments if not each.startswith("--")]
        text = "".join(payloads)
        for label, jobid in self.ids.items():
            text = text.replace(f"$(cat /tmp/rec-{label})", str(jobid))
        payload = msgspec.json.decode(text) if text else None
        if "--noresponse" in arguments:
            self.client.send(Request(topic, payload, flags=int(Flag.NORESPONSE)))
            return
        shown = re.sub(r"\d{6,}", "ID", f"{topic} {text}".rstrip())
        answer = "a stream that goes on"
        with trio.move_on_after(1):
            answer = await self._answer(topic, payload, arguments)
        self.answers[shown] = (answer, *recorded)

    async def _answer(self, topic: str, payload: Any, arguments: list[str]) -> str:
        try:
            if "--stream" in arguments:
                async with self.client.stream(topic, payload) as responses:
                    async for _ in responses:
                        pass
                return "errno 61: No data available"
            answer = await self.client.call(topic, payload)
        except FluxError as error:
            return f"errno {error.errnum}: {error.text}"
        return msgspec.json.encode(answer).decode() if answer else "null"


# Where flux-core says no more than the error's name, ours says what is wrong.
NAMES = ("Protocol error", "Invalid argument", "Device or resource busy")

# What is answered otherwise, and why.
DIFFERENT = {
    # it names a group in the classic edition (28.request)
    "resource.acquire": "errno 71",
    # a job that the scheduler has granted nothing
    'sched.expiration {"id": 1, "expiration": 100}': "errno 2: job 1 has no allocation",
    # numbers with a fraction are taken, too
    'sched.expiration {"id": 1, "expiration": -1}': "errno 22: invalid expiration -1.0",
    # there is no such service in the classic edition
    "feasibility.check {}": "errno 38",
    # a job that there is not, as everywhere else
    'job-manager.urgency {"id": 1, "urgency": 3}': "errno 2: unknown job",
    # a value out of its range, as everywhere else
    'job-manager.raise {"id": ID, "severity": 8, "type": "x"}': (
        "errno 22: invalid exception severity"
    ),
    # 0.88 has no defaults for `all` and `nocheckpoint`
    'job-manager.queue-start {"start": true}': "null",
}
# A plain client has said hello as a scheduler: ours takes it for one, and waits for it to free.
WAITS_FOR_EVER = "flux job wait-event -t 15 {A} clean"


async def test_answers_are_those_of_flux_core(autojump_clock: trio.testing.MockClock) -> None:
    player = Caller()
    inventory = ResourceSet.parse(player.recording.resources)
    given = Surroundings(inventory=inventory, userid=0, epoch=1_000_000.0)
    simulated = Config(exec=ExecConfig(simulate=True))
    async with open_instance(simulated, given) as instance, instance.connect() as client:
        with trio.fail_after(1000):
            await player.play(instance, client)
    assert len(player.answers) == 24
    for call, (ours, theirs) in player.answers.items():
        if call in DIFFERENT:
            assert ours.startswith(DIFFERENT[call]), call
            assert ours != theirs, call
        elif theirs.endswith(NAMES):
            assert ours.partition(":")[0] == theirs.partition(":")[0], call
        else:
            assert ours == theirs, call
