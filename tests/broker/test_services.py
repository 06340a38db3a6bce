"""broker.* and module.*, asked over the broker."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio
import trio.testing

from flux_trio.broker import Handle, TokenEntry, Tokens
from flux_trio.broker.router import SUBSCRIPTIONS_MAX
from flux_trio.messages import ROLE_USER, Errno, Event, FluxError, Request
from tests.support.asking import GUEST_USERID
from tests.support.modules import ModuleWorld, echo

OWNER_ONLY = {
    "broker.register": {"service": "sched"},
    "broker.unregister": {"service": "sched"},
    "broker.token": {"userid": 500, "name": "ann"},
    "broker.token-revoke": {"userid": 500},
    "broker.shutdown": None,
    "broker.backup": {"directory": "/x"},
    "module.load": {"name": "echo"},
    "module.reload": {"name": "echo"},
    "module.remove": {"name": "echo"},
    "module.kill": {"name": "echo"},
    "module.trace": {},
    "broker.log": {"level": 3, "text": "x"},
    "broker.note": {"kind": "state", "data": {}},
}


class BrokerWorld(ModuleWorld):
    """With `broker` and `module` served. `disk_is_full` makes tokens impossible to keep."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self.shutdown = trio.Event()
        self.disk_is_full = False
        self.backups: list[str] = []  # that are being made
        numbers = itertools.count(1)
        self.tokens = Tokens(lambda: f"secret-{next(numbers)}", self._save)

    async def start(self) -> None:
        more = {"shutdown": self.shutdown, "back_up": self._back_up}
        await self.serve_broker(self.tokens, info={"version": "1"}, **more)

    async def _back_up(self, directory: str) -> None:
        """Make a backup that takes for ever."""
        self.backups.append(directory)
        try:
            await trio.sleep_forever()
        finally:
            self.backups.remove(directory)

    def _save(self, entries: list[TokenEntry]) -> None:
        if self.disk_is_full:
            raise OSError("no space")


@pytest.fixture
async def world(nursery: trio.Nursery) -> BrokerWorld:
    world = BrokerWorld(nursery)
    await world.start()
    world.knows("echo", echo)
    return world


@pytest.fixture
def owner(world: BrokerWorld) -> Handle:
    return world.handle("owner")


async def refusal(asking: Any) -> tuple[int, str]:
    with pytest.raises(FluxError) as error:
        await asking
    return error.value.errnum, error.value.text


# --- who may


async def test_anybody_may_ask_what_runs_here(world: BrokerWorld) -> None:
    guest = world.guest()
    assert await guest.call("broker.info") == {"version": "1", "requester": GUEST_USERID}
    (module,) = (await guest.call("module.list"))["modules"]
    assert module == {
        "name": "broker",
        "services": ["broker", "log", "module"],
        "t_loaded": module["t_loaded"],
        "waiting": 0,
        "idle": module["idle"],
        "status": "running",
        "pid": None,
    }
    assert 1000 <= module["t_loaded"] <= world.now()
    assert 0 <= module["idle"] < 1


@pytest.mark.parametrize("topic", OWNER_ONLY)
async def test_guests_may_not_administer(world: BrokerWorld, topic: str) -> None:
    refused = await refusal(world.guest().call(topic, OWNER_ONLY[topic]))
    assert refused == (Errno.EPERM, "Request requires owner credentials")
    assert "echo" not in world.supervisor
    assert not world.shutdown.is_set()


@pytest.mark.parametrize("topic", ["broker.x", "module.x"])
async def test_unknown_method_is_enosys(owner: Handle, topic: str) -> None:
    "6.errors.1"
    service = topic.partition(".")[0]
    text = f"no method x in service {service}"
    assert await refusal(owner.call(topic)) == (Errno.ENOSYS, text)


@pytest.mark.parametrize(
    ("topic", "payload", "text"),
    [
        ("module.reload", {"name": 1}, "Expected `str`, got `int` - at `$.name`"),
        (
            "broker.token",
            {"userid": "x", "name": "ann"},
            "Expected `int`, got `str` - at `$.userid`",
        ),
        (
            "broker.token",
            {"userid": 0xFFFFFFFF, "name": "everybody"},
            "Expected `int` <= 4294967294 - at `$.userid`",
        ),
        ("broker.subscribe", {}, "Object missing required field `topic`"),
    ],
)
async def test_malformed_payload_is_refused_with_its_key(
    owner: Handle, topic: str, payload: Any, text: str
) -> None:
    refused = await refusal(owner.call(topic, payload))
    assert refused == (Errno.EPROTO, f"{topic}: payload: {text}")


# --- module.*


async def test_module_is_loaded_reloaded_and_removed(world: BrokerWorld, owner: Handle) -> None:
    await owner.call("module.load", {"name": "echo"})
    assert await owner.call("echo.back", {"a": 1}) == {"a": 1}
    await owner.call("module.reload", {"name": "echo"})
    assert await owner.call("echo.back", {"a": 2}) == {"a": 2}
    await owner.call("module.remove", {"name": "echo"})
    assert "echo" not in world.supervisor


@pytest.mark.parametrize(
    ("topic", "name", "refused"),
    [
        ("module.load", "shed", (Errno.ENOENT, "no module shed; there are broker, echo")),
        ("module.load", "broker", (Errno.EEXIST, "module broker is already loaded")),
        ("module.remove", "echo", (Errno.ENOENT, "module echo is not loaded")),
        ("module.reload", "echo", (Errno.ENOENT, "module echo is not loaded")),
        (
            "module.remove",
            "broker",
            (Errno.EBUSY, "module broker is needed as long as the instance runs"),
        ),
        (
            "module.reload",
            "broker",
            (Errno.EBUSY, "module broker is needed as long as the instance runs"),
        ),
    ],
)
async def test_what_cannot_be_is_refused(
    owner: Handle, topic: str, name: str, refused: tuple[int, str]
) -> None:
    assert await refusal(owner.call(topic, {"name": name})) == refused


async def fails_at_length(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
    raise ValueError("no " + "x" * 100)


async def test_why_a_module_does_not_start_is_answered_in_full_and_no_harm_to_the_broker(
    world: BrokerWorld, owner: Handle
) -> None:
    """RFC 6 only recommends less than 80 characters."""
    world.knows("bad", fails_at_length)
    refused = await refusal(owner.call("module.load", {"name": "bad"}))
    assert refused == (Errno.EINVAL, f"module bad: ValueError: no {'x' * 100}")
    assert (await owner.call("broker.info"))["version"] == "1"


async def test_slow_start_of_a_module_holds_nobody_up(
    world: BrokerWorld, owner: Handle, autojump_clock: trio.testing.MockClock
) -> None:
    async def slow(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(10)
        task_status.started()
        await trio.sleep_forever()

    world.knows("slow", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(owner.call, "module.load", {"name": "slow"})
        await trio.testing.wait_all_tasks_blocked()
        await owner.call("broker.info")
        assert world.now() == 1000
    assert world.now() == 1010


# --- broker.*


async def test_subscription_is_to_a_glob_until_it_is_given_up(
    world: BrokerWorld, owner: Handle
) -> None:
    publisher = world.handle("publisher")
    await owner.call("broker.subscribe", {"topic": "job-*"})
    publisher.send(Event("job-state", {"n": 1}))
    await owner.call("broker.unsubscribe", {"topic": "job-*"})
    publisher.send(Event("job-state", {"n": 2}))
    assert [event.payload for event in await owner.receive()] == [{"n": 1}]
    assert owner.waiting() == 0


async def test_subscription_that_is_not_there_cannot_be_given_up(owner: Handle) -> None:
    refused = await refusal(owner.call("broker.unsubscribe", {"topic": "job-*"}))
    assert refused == (Errno.ENOENT, "not subscribed to job-*")


async def test_subscriptions_of_a_user_are_bounded_and_those_of_another_are_others(
    world: BrokerWorld, owner: Handle
) -> None:
    """Otherwise each further connection would bring as many globs again."""
    one, two = world.guest("one"), world.guest("two")
    for n in range(SUBSCRIPTIONS_MAX):
        await (one, two)[n % 2].call("broker.subscribe", {"topic": f"{n}*"})
    for guest in (one, two):
        refused = await refusal(guest.call("broker.subscribe", {"topic": "*"}))
        assert refused == (Errno.ENOSPC, f"a user may have {SUBSCRIPTIONS_MAX} subscriptions")
    await owner.call("broker.subscribe", {"topic": "*"})
    await two.call("broker.unsubscribe", {"topic": "1*"})
    await one.call("broker.subscribe", {"topic": "*"})


async def test_glob_that_is_too_long_is_refused(owner: Handle) -> None:
    errnum, text = await refusal(owner.call("broker.subscribe", {"topic": "*" * 256}))
    assert (errnum, text.partition(": expected")[0]) == (Errno.EPROTO, "broker.subscribe: topic")


async def test_request_of_a_peer_that_has_gone_meanwhile_does_no_harm(
    world: BrokerWorld, owner: Handle
) -> None:
    for topic in ("broker.subscribe", "broker.unsubscribe", "module.load"):
        guest = world.guest()
        guest.send(Request(topic, {"topic": "*", "name": "echo"}, 1))
        guest.close()
        await trio.testing.wait_all_tasks_blocked()
    assert (await owner.call("broker.info"))["version"] == "1"


async def test_new_token_is_a_guests(world: BrokerWorld, owner: Handle) -> None:
    answer = await owner.call("broker.token", {"userid": 500, "name": "ann"})
    credentials = world.tokens.authenticate(answer["token"])
    assert credentials is not None
    assert (credentials.userid, credentials.name) == (500, "ann")
    assert credentials.rolemask & ROLE_USER


async def test_token_that_cannot_be_kept_is_an_error(world: BrokerWorld, owner: Handle) -> None:
    world.disk_is_full = True
    refused = await refusal(owner.call("broker.token", {"userid": 500, "name": "ann"}))
    assert refused == (Errno.EIO, "cannot store the token: no space")


async def test_shutdown_is_passed_on(world: BrokerWorld, owner: Handle) -> None:
    await owner.call("broker.shutdown")
    assert world.shutdown.is_set()


# --- serving from outside


async def test_peer_that_registers_a_service_gets_its_requests(
    world: BrokerWorld, owner: Handle
) -> None:
    server = world.handle("server")
    await server.call("broker.register", {"service": "outside"})
    owner.send(Request("outside.x", {"n": 1}, 5))
    (request,) = await server.receive()
    assert (request.topic, request.sender) == ("outside.x", "owner")
    text = "service outside is already held by server"
    again = owner.call("broker.register", {"service": "outside"})
    assert await refusal(again) == (Errno.EEXIST, text)


async def test_who_waits_on_a_service_that_is_given_up_is_answered(
    world: BrokerWorld, owner: Handle
) -> None:
    server = world.handle("server")
    await server.call("broker.register", {"service": "outside"})
    await server.call("broker.register", {"service": "other"})
    owner.send(Request("outside.x", None, 5))
    owner.send(Request("other.x", None, 6))
    await server.call("broker.unregister", {"service": "outside"})
    (answer,) = await owner.receive()
    assert (answer.matchtag, answer.errnum, answer.error_text) == (5, 38, "server is gone")
    assert await refusal(owner.call("outside.x")) == (
        Errno.ENOSYS,
        "No service matching outside.x is registered",
    )
    assert world.router.services["other"] is server.peer


async def test_service_that_another_holds_cannot_be_given_up(
    world: BrokerWorld, owner: Handle
) -> None:
    text = "owner does not hold service broker"
    assert await refusal(owner.call("broker.unregister", {"service": "broker"})) == (
        Errno.ENOENT,
        text,
    )
    assert "broker" in world.router.services


async def test_service_name_is_one_word(owner: Handle) -> None:
    for name in ("", "a.b", "a b"):
        errnum, text = await refusal(owner.call("broker.register", {"service": name}))
        assert (errnum, "service" in text) == (Errno.EPROTO, True)


async def test_idle_grows_while_a_module_takes_nothing_up(
    world: BrokerWorld, owner: Handle, autojump_clock: trio.testing.MockClock
) -> None:
    "design, job manager hangs: its silence shows in module list."

    async def deaf(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        handle.register("deaf")
        task_status.started()
        await trio.sleep_forever()

    await world.load("deaf", deaf)
    owner.send(Request("deaf.x", None, 1))
    await trio.sleep(60)
    modules = (await owner.call("module.list"))["modules"]
    shown = {each["name"]: (each["waiting"], each["idle"] >= 60) for each in modules}
    assert shown == {"broker": (0, False), "deaf": (1, True)}


async def test_backup_is_stopped_when_its_client_goes(world: BrokerWorld, owner: Handle) -> None:
    leaving = world.handle("leaving")
    for handle, directory in ((leaving, "/a"), (owner, "/b"), (leaving, "/c")):
        handle.send(Request("broker.backup", {"directory": directory}))
    await trio.testing.wait_all_tasks_blocked()
    assert set(world.backups) == {"/a", "/b", "/c"}  # tasks begin in any order
    leaving.close()
    await trio.testing.wait_all_tasks_blocked()
    assert world.backups == ["/b"]


async def test_flux_lists_and_loads_modules_by_its_own_names(nursery: trio.Nursery) -> None:
    world = ModuleWorld(nursery)
    await world.serve_broker()
    await world.load("sched", echo)
    owner = world.handle("owner")
    mods = {each["name"]: each for each in (await owner.call("module.list"))["mods"]}
    assert mods["sched"] == {
        "name": "sched", "path": "builtin", "idle": 0, "status": 1, "services": ["echo"],
        "sendqueue": 0, "recvqueue": 0,
    }  # fmt: skip
    await owner.call("module.remove", {"name": "sched-simple", "cancel": False})
    await owner.call("module.load", {"path": "sched-simple", "args": [], "exec": False})
    assert "sched" in world.supervisor
    with pytest.raises(FluxError, match="module: payload: expected name or path"):
        await owner.call("module.load", {})
    with pytest.raises(FluxError, match="need the native door"):
        await owner.call("module.load", {"path": "/a/b.py", "args": []})
    with pytest.raises(FluxError, match="or its name without loader"):
        await owner.call("module.load", {"path": "sched", "loader": "x"})
