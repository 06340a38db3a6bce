"""Handlers that are not called for a while, and ends of jobs that nobody has to be told of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flux_trio import jobtap
from flux_trio.config import read_config
from flux_trio.jobtap import Job, NotAllowed, Plugin
from flux_trio.jobtap.builtins import Lifetime, builtin_plugins
from flux_trio.protocols import DESTROY, JobState
from tests.support.plugin_host import JOB, PRIORITY, handling, rig
from tests.support.scheduling import machine

ACTIVE = JOB
SINGLETON = {"scheme": "singleton", "value": ""}


class Quiet(Plugin):
    """Says a priority, and has a handler for a family of topics."""

    name = "quiet"

    @jobtap.on(PRIORITY)
    def priority(self, _job: Job) -> int:
        return 7

    @jobtap.on("job.state.*")
    def any_state(self, _job: Job) -> None:
        pass


async def test_handler_is_not_called_until_it_is_wanted_again_and_others_are_all_the_same():
    quiet = Quiet()
    async with rig(handling(PRIORITY, lambda _job: 3, "other"), quiet) as r:
        assert r.answer(PRIORITY).priority == 7
        for _ in range(2):
            quiet.listen(PRIORITY, wanted=False)
            assert r.answer(PRIORITY).priority == 3
        quiet.listen(PRIORITY)
        assert r.answer(PRIORITY).priority == 7


async def test_job_manager_is_told_which_hooks_are_handled_now():
    quiet = Quiet()
    async with rig(quiet) as r:
        assert r.interests.handled(PRIORITY)
        assert r.interests.handled("job.state.run")
        quiet.listen("job.state.*", wanted=False)
        assert r.interests.handled(PRIORITY)
        assert not r.interests.handled("job.state.run")
        quiet.listen(PRIORITY, wanted=False)
        assert not r.interests.handled(PRIORITY)
        quiet.listen("job.state.*")
        assert r.interests.handled(PRIORITY)  # by the glob


async def test_only_topics_of_its_handlers_can_be_listened_to():
    quiet = Quiet()
    async with rig(quiet):
        with pytest.raises(NotAllowed, match=r"^no handler of 'job.new': there are job\.state\."):
            quiet.listen("job.new")
        with pytest.raises(NotAllowed, match=r"^no handler of 'job.state.run'"):
            quiet.listen("job.state.run", wanted=False)


async def test_plugin_that_is_loaded_again_is_called_again():
    quiet = Quiet()
    async with rig(quiet) as r:
        quiet.listen(PRIORITY, wanted=False)
        await r.host.remove("quiet")
        await r.host.load(quiet)
        assert r.answer(PRIORITY).priority == 7


# --- the builtin plugins


@pytest.mark.parametrize("limit", ["job-size", "duration", "lifetime", ""])
async def test_validation_asks_nobody_without_limits(limit: str):
    limits = {"job-size": {"job-size": {"max": {"nnodes": 2}}}, "duration": {"duration": "1h"}}
    config = read_config({"policy": {"limits": limits.get(limit, {})}})
    lifetime = Lifetime(4000.0 if limit == "lifetime" else 0.0)
    async with rig(*builtin_plugins(lifetime, machine(1, 1)), config=config) as r:
        assert r.interests.handled("job.validate") == bool(limit)


async def test_new_end_of_the_instance_is_looked_at_and_its_removal_too():
    lifetime = Lifetime(0.0)
    async with rig(*builtin_plugins(lifetime, machine(1, 1))) as r:
        lifetime.change(4000.0)
        assert r.interests.handled("job.validate")
        lifetime.change(0.0)
        assert not r.interests.handled("job.validate")
        await r.host.remove(".validate-duration")
        lifetime.change(4000.0)
        assert not r.interests.handled("job.validate")


async def test_new_jobs_are_counted_from_the_first_singleton_on():
    async with rig(*builtin_plugins(Lifetime(0.0), machine(1, 1))) as r:
        assert not r.interests.handled("job.new")
        r.answer("job.dependency.singleton", ACTIVE, SINGLETON)
        assert r.interests.handled("job.new")


# --- the ends of jobs


async def test_end_of_a_job_is_not_told_while_nothing_is_kept():
    async with rig(Quiet()) as r:
        assert not r.interests.handled(DESTROY)
        r.answer(PRIORITY)
        assert not r.interests.handled(DESTROY)


async def test_end_is_told_to_a_plugin_that_handles_it():
    async with rig(handling(DESTROY, lambda _job: None)) as r:
        assert r.interests.handled(DESTROY)


@pytest.mark.parametrize("keep", [lambda job: job.data.update(seen=True), Job.subscribe])
async def test_end_is_told_from_when_something_is_kept_of_a_job(keep: Callable[[Job], None]):
    async with rig(handling(PRIORITY, lambda job: keep(job))) as r:
        assert not r.interests.handled(DESTROY)
        r.answer(PRIORITY)
        assert r.interests.handled(DESTROY)
        r.host.notify(DESTROY, ACTIVE)
        assert r.host.plugins[0].data == {}


async def test_end_is_told_while_a_plugin_follows_states():
    class Following(Plugin):
        name = "following"

        @jobtap.enter(JobState.RUN)
        def enter(self, _job: Job) -> None:
            pass

    async with rig(Following()) as r:
        assert r.interests.handled(DESTROY)
        await r.host.remove("following")
        assert not r.interests.handled(DESTROY)


# --- notes for the trace


async def test_job_manager_is_told_whether_the_trace_has_a_reader():
    async with rig(Quiet()) as r:
        told = []
        for is_traced in (True, False, False, True):
            r.is_traced = is_traced
            news = r.host.news()
            told.append(None if news is None else news.notes)
        assert told == [None, False, None, True]
