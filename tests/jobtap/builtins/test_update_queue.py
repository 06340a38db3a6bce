"""update-queue."""

from __future__ import annotations

from flux_trio.config import parse_config
from flux_trio.cores.job_manager.calls import User
from flux_trio.messages import topics
from tests.support.playing import GUEST, context, guest_of, simulated_jobs

CONFIG = parse_config("""
[[resource.config]]
hosts = "node[0-3]"
cores = "0-3"
[policy.jobspec.defaults.system]
queue = "batch"
[queues.batch]
[queues.first]
requires = { hostlist = ["node0"] }
[queues.others]
requires = { not = [{ hostlist = ["node0"] }] }
[queues.debug.policy.limits]
duration = "1m"
""")


async def test_job_changes_its_queue_and_constraints_with_it(autojump_clock):
    async with simulated_jobs(config=CONFIG) as jobs:
        held = await jobs.submit(urgency=0, queue="first")
        assert await jobs.update(held, queue="others") == ""
        events = await jobs.events(held, "jobspec-update")
        assert context(events, "jobspec-update") == {
            "attributes.system.constraints": {"hostlist": ["node0"]}
        }
        updates = [each for each in await jobs.so_far(held) if each.name == "jobspec-update"]
        assert updates[-1].context == {
            "attributes.system.queue": "others",
            "attributes.system.constraints": {"not": [{"hostlist": ["node0"]}]},
        }
        assert await jobs.update(held, queue="batch") == ""
        updates = [each for each in await jobs.so_far(held) if each.name == "jobspec-update"]
        assert updates[-1].context == {
            "attributes.system.queue": "batch",
            "attributes.system.constraints": {},
        }


async def test_limits_of_the_new_queue_hold(autojump_clock):
    async with simulated_jobs(config=CONFIG) as jobs:
        held = await jobs.submit(urgency=0, duration=120)
        text = "requested duration (2m) exceeds policy limit of 1m for queue debug"
        assert await jobs.update(held, queue="debug") == text


async def test_why_a_job_cannot_change_its_queue(autojump_clock):
    async with simulated_jobs(config=CONFIG) as jobs, guest_of(jobs.instance) as guest:
        running = await jobs.submit(seconds=100)
        await jobs.events(running, "start")
        text = "update of queue for running job not supported"
        assert await jobs.update(running, queue="first") == text
        held = await guest.submit(urgency=0)
        assert await guest.update(held, queue="batch") == "job queue is already set to batch"
        assert await guest.update(held, queue="nosuch") == "'nosuch' is not a valid queue"
        await jobs.call(topics.JOB_QUEUE_ENABLE, {"enable": False, "name": "first", "reason": "r"})
        assert await guest.update(held, queue="first") == "queue first is currently disabled"
        picky = await jobs.submit(
            urgency=0, attributes={"system.constraints": {"hostlist": ["node1"]}}
        )
        text = "job appears to have non-queue constraints, unable to update queue to others"
        assert await jobs.update(picky, queue="others") == text


CHANGED = parse_config("""
[[resource.config]]
hosts = "node[0-3]"
cores = "0-3"
[policy.jobspec.defaults.system]
queue = "batch"
[queues.batch]
requires = { hostlist = ["node3"] }
[queues.others]
requires = { not = [{ hostlist = ["node0"] }] }
""")  # first is gone


async def test_job_stays_and_moves_whatever_its_queue_requires_by_now(autojump_clock):
    async with simulated_jobs(config=CONFIG) as jobs:
        of_gone, of_changed = [
            await jobs.submit(urgency=0, queue=queue) for queue in ("first", "batch")
        ]
        await jobs.call(topics.CONFIG_LOAD, {"config": CHANGED.to_json()})
        for module in ("sched", "job-manager"):
            await jobs.instance.supervisor.reload(module)
        before = {"hostlist": ["node0"]}
        updates = [each for each in await jobs.so_far(of_gone) if each.name == "jobspec-update"]
        assert [each.context for each in updates] == [{"attributes.system.constraints": before}]
        assert await jobs.update(of_gone, queue="batch") == ""
        assert await jobs.update(of_changed, queue="others") == ""
        for jobid, queue in ((of_gone, "batch"), (of_changed, "others")):
            updates = [each for each in await jobs.so_far(jobid) if each.name == "jobspec-update"]
            assert updates[-1].context == {
                "attributes.system.queue": queue,
                "attributes.system.constraints": CHANGED.to_json()["queues"][queue]["requires"],
            }


CLOSED = parse_config("""
[policy.jobspec.defaults.system]
queue = "open"
[queues.open]
[queues.closed.policy.access]
allow-group = ["physics"]
""")


async def test_access_to_the_new_queue_is_needed_unless_the_owner_moves_the_job(autojump_clock):
    users = {GUEST: User("bob", frozenset({"staff"})), 7: User("ann", frozenset({"physics"}))}
    async with (
        simulated_jobs(config=CLOSED, users=users) as jobs,
        guest_of(jobs.instance) as bob,
        guest_of(jobs.instance, 7) as ann,
    ):
        held = await bob.submit(urgency=0)
        text = "user bob has no access to queue closed"
        assert await bob.update(held, queue="closed") == text
        assert await jobs.update(held, queue="closed") == ""
        assert await ann.update(await ann.submit(urgency=0), queue="closed") == ""
