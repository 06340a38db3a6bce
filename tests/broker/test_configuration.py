"""config.*: a new configuration is taken by all who go by it, or by nobody."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from flux_trio.broker import ConfigRefused, Configuration, Handle, LocalHandle
from flux_trio.config import Config, parse_config
from flux_trio.messages import ROLE_OWNER, ROLE_USER, Errno, FluxError, Request, respond
from tests.support.asking import GUEST_USERID, OWNER_USERID
from tests.support.modules import ModuleWorld

OLD = parse_config("[policy.limits]\nduration = '1h'")
OTHER_EDITION = parse_config('edition = "current"')
NEW = parse_config("[policy.limits]\nduration = '2h'\n[sched]\npolicy = 'easy'")


class ConfigWorld(ModuleWorld):
    """`config` is served; `told` are the services that were given a configuration."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self.file: Config | ConfigRefused | None = NEW
        self.changes: list[Config] = []
        self.given: list[tuple[str, dict[str, Any]]] = []
        self.refusals: dict[str, str] = {}
        self.configuration = Configuration(OLD, self._read, self.changes.append)

    async def start(self, *takers: str) -> None:
        for name in takers:
            await self.load(name, self._taker)
        await self.load("config", self.configuration.run)

    async def call(self, topic: str, payload: Any = None, *, guest: bool = False) -> Any:
        name = self.router.unique_name("client")
        userid, role = (GUEST_USERID, ROLE_USER) if guest else (OWNER_USERID, ROLE_OWNER)
        handle = LocalHandle(name, self.router, self.now, self.log, userid, role)
        return await handle.call(topic, payload)

    async def _read(self) -> Config:
        if isinstance(self.file, ConfigRefused):
            raise self.file
        assert self.file is not None
        return self.file

    async def _taker(self, handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        handle.register(handle.name)
        task_status.started()
        while True:
            for request in await handle.receive():
                if not isinstance(request, Request) or "config" not in request.topic:
                    continue
                assert isinstance(request.payload, dict)
                self.given.append((handle.name, request.payload["config"]))
                text = self.refusals.get(handle.name)
                answer = respond(request, None if text is None else {"refusal": text})
                assert answer is not None
                handle.send(answer)


@pytest.fixture
async def world(nursery: trio.Nursery) -> ConfigWorld:
    return ConfigWorld(nursery)


async def test_what_is_in_force_is_for_everybody_to_see(world: ConfigWorld) -> None:
    await world.start()
    told = await world.call("config.get", guest=True)
    assert told["config"]["policy"]["limits"]["duration"] == "1h"
    assert (await world.call("config.stats-get"))["requests"]["config.get"] == 1


async def test_new_file_goes_to_the_job_manager_first_then_to_all(world: ConfigWorld) -> None:
    """And what modules read when they are loaded is named."""
    await world.start("job-list", "job-manager")
    assert await world.call("config.reload") == {"later": ["sched"]}
    assert world.given == [("job-manager", NEW.to_json()), ("job-list", NEW.to_json())]
    assert world.changes == [NEW]
    assert (await world.call("config.get"))["config"] == NEW.to_json()


async def test_the_log_names_the_keys_that_have_changed(world: ConfigWorld) -> None:
    await world.start()
    await world.call("config.reload")
    await world.call("config.reload")
    world.file = parse_config("".join(f"[queues.q{n}]\n" for n in range(25)))
    await world.call("config.reload")
    first, second, third = (each.text for each in world.log if each.text.startswith("changed: "))
    assert first == "changed: sched.policy, policy.limits.duration"
    assert second == "changed: nothing"
    assert third.startswith("changed: sched.policy, policy.limits.duration, queues.q0, ")
    assert third.endswith("queues.q17 and 7 more")


async def test_scheduler_knows_other_queues_when_it_is_loaded_again(world: ConfigWorld) -> None:
    """33.schedpolicy.1"""
    await world.start()
    for text, later in (
        ("[queues.a]", ["policy.scheduler"]),
        ("[queues.a.policy.limits]\nduration = '1h'", []),
        ("[queues.a.policy.scheduler]\npolicy = 'easy'", ["policy.scheduler"]),
    ):
        world.file = parse_config(text)
        assert await world.call("config.reload") == {"later": later}


async def test_a_table_may_come_and_go(world: ConfigWorld) -> None:
    await world.start()
    for text in ("[fake-resources]\nnnodes = 2", "", "[fake-resources]\nnnodes = 2"):
        world.file = parse_config(text)
        later = await world.call("config.reload")
        assert "fake-resources" in later["later"]


async def test_job_manager_goes_by_all_but_its_plugins_at_once(world: ConfigWorld) -> None:
    await world.start("job-manager")
    for text, later in (
        ("[job-manager.prolog]\ncommand = ['true']", []),
        ("[job-manager.epilog]\ncommand = ['true']", []),
        ("[job-manager.perilog]\nlog-ignore = ['x']", []),
        ("[job-manager]\ninactive-num-limit = 3", []),
        ("[job-manager.user-limits]\njobs = 3", []),
        ("[[job-manager.plugins]]\nload = 'x'", ["job-manager.plugins"]),
    ):
        world.file = parse_config(text)
        assert await world.call("config.reload") == {"later": later}


async def test_configuration_may_come_with_the_request(world: ConfigWorld) -> None:
    await world.start("job-manager")
    await world.call("config.load", {"config": NEW.to_json()})
    assert world.changes == [NEW]


async def test_one_that_the_job_manager_refuses_changes_nothing(world: ConfigWorld) -> None:
    await world.start("job-list", "job-manager")
    world.refusals["job-manager"] = "plugin p: no"
    assert await world.call("config.reload") == {"refusal": "plugin p: no"}
    assert [name for name, _ in world.given] == ["job-manager"]
    assert world.changes == []
    assert (await world.call("config.get"))["config"] == OLD.to_json()


async def test_one_of_another_edition_is_asked_of_nobody(world: ConfigWorld) -> None:
    """The modules of an instance speak with each other: all of them speak one edition."""
    await world.start("job-manager")
    world.file = OTHER_EDITION
    told = await world.call("config.reload")
    expected = "expected 'classic', which this instance speaks until its end: got 'current'"
    assert told == {"refusal": f"edition: {expected}"}
    assert world.given == []
    assert world.changes == []


async def test_invalid_one_is_asked_of_nobody(world: ConfigWorld) -> None:
    """33.impl.5: a default queue is one of the queues."""
    await world.start("job-manager")
    policy = {"jobspec": {"defaults": {"system": {"queue": "c"}}}}
    config = {"queues": {"a": {}, "b": {}}, "policy": policy}
    answer = await world.call("config.load", {"config": config})
    assert answer.get("refusal", "").startswith(
        "config.policy.jobspec.defaults.system.queue: expected one"
    )
    world.file = ConfigRefused("site.toml.policy: expected a table, got 1")
    answer = await world.call("config.reload")
    assert answer == {"refusal": "site.toml.policy: expected a table, got 1"}
    assert (world.given, world.changes) == ([], [])


async def test_service_that_is_not_there_gets_it_when_it_is_loaded(world: ConfigWorld) -> None:
    await world.start()
    await world.call("config.reload")
    assert world.changes == [NEW]


async def test_only_the_owner_changes_it(world: ConfigWorld) -> None:
    await world.start()
    for topic in ("config.load", "config.reload"):
        with pytest.raises(FluxError) as error:
            await world.call(topic, {"config": {}}, guest=True)
        assert error.value.errnum == Errno.EPERM


async def test_without_a_file_there_is_nothing_to_read_again(world: ConfigWorld) -> None:
    world.configuration.read = None
    await world.start()
    with pytest.raises(FluxError) as error:
        await world.call("config.reload")
    assert error.value.errnum == Errno.ENOENT


async def test_other_methods_do_not_exist(world: ConfigWorld) -> None:
    """6.response.3"""
    await world.start()
    with pytest.raises(FluxError) as error:
        await world.call("config.nosuch")
    assert error.value.errnum == Errno.ENOSYS


async def test_flux_is_told_what_was_configured_and_loads_it_as_it_is(world: ConfigWorld) -> None:
    """Flux's own programs send and get the tables without a key around them, and no default."""
    world.configuration.config = OTHER_EDITION
    await world.start()
    assert await world.call("config.get") == {"edition": "current"}
    await world.call("config.load", {"policy": {"limits": {"duration": "3h"}}})
    told = await world.call("config.get")
    assert told == {"edition": "current", "policy": {"limits": {"duration": "3h"}}}
    whole = (await world.call("config.get", {"defaults": True}))["config"]
    assert whole["policy"]["limits"]["duration"] == "3h"
    assert whole["kvs"] == {"synchronous": "normal"}
    await world.call("config.load", {"config": whole})
    assert await world.call("config.get") == told
