"""What a policy of the user has to keep, beside what every policy has to."""

from __future__ import annotations

import msgspec

from flux_trio.cores.sched.core import SchedCore
from flux_trio.cores.state import StateError
from flux_trio.formats import format_fluid
from flux_trio.lab.properties.pauses import core_of
from flux_trio.lab.properties.property import at_each_pause
from flux_trio.lab.world.cores_world import CoresWorld


@at_each_pause("put-down")
def state_of_the_policy_can_be_put_down(world: CoresWorld) -> str:
    """A scheduler decides the same when its state was put down as JSON and taken up again."""
    core = core_of(world, "sched", SchedCore)
    after = world.make("sched")
    assert isinstance(after, SchedCore)
    try:
        text = msgspec.json.encode(core.dump())
        after.load(msgspec.json.decode(text))
        if msgspec.json.encode(after.dump()) != text:
            return f"the state is {text!r:.200}, and another one when it has been taken up"
    except StateError as error:
        return str(error)
    except msgspec.MsgspecError as error:
        return f"the state is not JSON: {error}"
    if started := [job.id for job, _ in after.schedule.decide(world.now).started]:
        return f"{format_fluid(started[0], 'f58')} waits, and starts when the state is taken up"
    return ""
