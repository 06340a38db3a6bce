"""A whole instance: it comes up, runs jobs, and leaves nothing but what it must."""

from __future__ import annotations

import resource
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from flux_trio.broker import ModuleCrashed, ModuleNotStarted
from flux_trio.client import TOKEN_FILE, URI_FILE
from flux_trio.config import BrokerConfig, Config, ExecConfig
from flux_trio.formats import Jobspec, format_fluid, parse_eventlog
from flux_trio.instance import (
    MODULES,
    Instance,
    ListenError,
    Surroundings,
    durable_store,
    error_of_start,
    open_instance,
)
from flux_trio.jobtap import Job, Plugin, Reject, on
from flux_trio.messages import (
    ROLE_LOCAL,
    ROLE_OWNER,
    Errno,
    Flag,
    FluxError,
    Level,
    Message,
    Request,
    Response,
    topics,
)
from flux_trio.protocols import ACTIVE, JobState
from flux_trio.sim import make_machine
from flux_trio.store.state_directory import TOKENS_FILE, write_private
from flux_trio.store.stores import MemoryStore, StoreError
from flux_trio.trace import Record
from flux_trio.transports import (
    Connection,
    Credentials,
    EndOfConnection,
    connect_websocket,
    memory_pair,
)
from tests.support.cancelling import nothing_left_wherever_cancelled

HOUR = 3600.0
CONFIG = Config(exec=ExecConfig(simulate=True))
BEFORE_ALLOC = ["submit", "validate", "depend", "priority"]
EVENTS = [*BEFORE_ALLOC, "alloc", "start", "finish", "release", "free", "clean"]


def surroundings(**more: Any) -> Surroundings:
    return Surroundings(
        **{
            "inventory": make_machine(nnodes=1, cores_per_node=2),
            "userid": 1000,
            "epoch": 1_000_000.0,
            **more,
        }
    )


class User:
    """Somebody in this process who submits jobs and looks at them."""

    def __init__(self, instance: Instance, handle: Any) -> None:
        self.instance = instance
        self.call = handle.call
        self.stream = handle.stream
        self.send = handle.send

    async def submit(self, run_s: float = 1.0, ncores: int = 1) -> int:
        attributes = {"system.exec.test.run_duration": run_s}
        jobspec = Jobspec.from_command(["true"], ntasks=ncores, attributes=attributes)
        return int((await self.call(topics.INGEST_SUBMIT, {"jobspec": jobspec.to_json()}))["id"])

    async def wait(self, jobid: int, name: str) -> None:
        async with self.stream(topics.INFO_WATCH, {"id": jobid}) as lines:
            async for line in lines:
                if f'"name":"{name}"' in line["event"]:
                    return
        raise AssertionError(f"no {name}")

    async def events(self, jobid: int) -> list[str]:
        key = f"{format_fluid(jobid, 'kvs')}.eventlog"
        return [
            e.name for e in parse_eventlog((await self.call("kvs.lookup", {"key": key}))["value"])
        ]

    async def states(self) -> dict[int, JobState]:
        listed = await self.call(
            topics.LIST_LIST, {"max_entries": 0, "states": int(ACTIVE | JobState.INACTIVE)}
        )
        return {job["id"]: JobState(job["state"]) for job in listed["jobs"]}


@asynccontextmanager
async def opened(given: Surroundings, config: Config = CONFIG) -> AsyncIterator[User]:
    async with open_instance(config, given) as instance, instance.connect() as handle:
        yield User(instance, handle)


# --- comes up, and goes


async def test_job_runs_from_submit_to_inactive(autojump_clock: MockClock) -> None:
    async with opened(surroundings()) as user:
        began = user.instance.now()
        jobid = await user.submit(run_s=HOUR)
        await user.wait(jobid, "clean")
        assert HOUR <= user.instance.now() - began < HOUR + 1
        assert await user.events(jobid) == EVENTS
        assert await user.states() == {jobid: JobState.INACTIVE}
        assert [entry for entry in user.instance.log if entry.level <= Level.WARNING] == []


async def test_after_the_block_nothing_of_it_is_left(autojump_clock: MockClock) -> None:
    tasks = len(trio.lowlevel.current_task().child_nurseries)
    records: list[Record] = []
    async with opened(surroundings(sinks=(records.append,))) as user:
        instance = user.instance
        jobid = await user.submit(run_s=HOUR)
        await user.wait(jobid, "start")
        names = [module.name for module in instance.supervisor.list()]
        assert names == [*MODULES, "config", "broker"]
    assert instance.supervisor.list() == []
    assert (instance.router.peers, instance.router.services) == ({}, {})
    assert len(trio.lowlevel.current_task().child_nurseries) == tasks
    removed = [
        record.data["module"]
        for record in records
        if record.kind == "module" and record.data and record.data["what"] == "removed"
    ]
    assert removed == ["broker", "config", *reversed(MODULES)]


@pytest.mark.gate
async def test_nothing_is_left_wherever_a_cancel_meets_an_instance(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async def run() -> None:
        async with opened(surroundings(statedir=tmp_path, listen=True)) as user:
            await user.wait(await user.submit(), "clean")

    assert await nothing_left_wherever_cancelled(run) > 100


async def test_error_inside_the_block_takes_the_instance_down(autojump_clock: MockClock) -> None:
    instances: list[Instance] = []
    with pytest.RaisesGroup(ZeroDivisionError):
        async with open_instance(CONFIG, surroundings()) as instance:
            instances.append(instance)
            raise ZeroDivisionError
    assert instances[0].router.peers == {}


async def test_cancelled_instance_is_taken_down_and_the_cancel_goes_on(
    autojump_clock: MockClock,
) -> None:
    instances: list[Instance] = []
    with trio.move_on_after(5) as scope:
        async with open_instance(CONFIG, surroundings()) as instance:
            instances.append(instance)
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert instances[0].router.peers == {}


def no_disk() -> Any:
    raise StoreError(Errno.EIO, "state.sqlite: no disk")


class NoStart(Plugin):
    """Cannot be loaded."""

    name = "no-start"

    def loaded(self) -> None:
        raise ZeroDivisionError("no start")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"store": no_disk}, r"module kvs: StoreError: state\.sqlite: no disk"),
        (
            {"plugins": [NoStart()]},
            "module job-manager: PluginError: plugin no-start failed when it was "
            "loaded: ZeroDivisionError: no start",
        ),
    ],
)
async def test_error_of_a_module_at_start_is_raised_before_the_block(
    tmp_path: Path, autojump_clock: MockClock, more: dict[str, Any], text: str
) -> None:
    entered: list[Instance] = []
    given = surroundings(statedir=tmp_path, listen=True, **more)
    with pytest.RaisesGroup(pytest.RaisesExc(ModuleNotStarted, match=text)):
        async with open_instance(CONFIG, given) as instance:
            entered.append(instance)
    assert entered == []
    assert not (tmp_path / URI_FILE).exists()
    assert not (tmp_path / TOKEN_FILE).exists()


async def test_address_that_is_taken_is_raised_before_the_block(tmp_path: Path) -> None:
    given = surroundings(statedir=tmp_path, listen=True)
    async with open_instance(CONFIG, given) as first:
        port = int(first.uri.rpartition(":")[2])
        config = Config(broker=BrokerConfig(port=port), exec=ExecConfig(simulate=True))
        text = f"cannot listen at 127.0.0.1:{port}: "
        refused = pytest.RaisesExc(ListenError, match=text)
        with pytest.RaisesGroup(refused, flatten_subgroups=True):
            async with open_instance(config, surroundings(listen=True)):
                pytest.fail("entered")


async def test_error_of_the_block_is_in_a_group(autojump_clock: MockClock) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        async with open_instance(CONFIG, surroundings()):
            raise LookupError("of the block")
    error = error_of_start(raised.value)
    assert (type(error), error.args) == (LookupError, ("of the block",))


class DiesLater(MemoryStore):
    """Fails in a way that no store should."""

    def lookup(self, keys: Sequence[str], *bounds: Any) -> list[str | None]:
        if "bad" in keys:
            raise ZeroDivisionError("bad sector")
        return super().lookup(keys, *bounds)


async def test_crash_of_the_kvs_ends_the_instance(autojump_clock: MockClock) -> None:
    "design, kvs raises: stop-the-world with a clear error."
    instances: list[Instance] = []
    text = "module kvs: ZeroDivisionError: bad sector"
    with pytest.RaisesGroup(pytest.RaisesExc(ModuleCrashed, match=text)):
        async with opened(surroundings(store=DiesLater)) as user:
            instances.append(user.instance)
            user.send(Request("kvs.lookup", {"key": "bad"}, 99, int(Flag.NONE)))
            await trio.sleep_forever()
    assert instances[0].router.peers == {}


# --- the state directory


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_uri_and_token_are_private_and_there_while_the_instance_runs(tmp_path: Path) -> None:
    given = surroundings(statedir=tmp_path, listen=True, make_token=iter(["one", "two"]).__next__)
    async with open_instance(CONFIG, given) as instance:
        uri, token = tmp_path / URI_FILE, tmp_path / TOKEN_FILE
        assert (uri.read_text(), token.read_text()) == (instance.uri, "one")
        tokens = tmp_path / TOKENS_FILE
        assert [mode_of(path) for path in (uri, token, tokens)] == [0o600] * 3
        assert "one" not in tokens.read_text()
        async with connect_websocket(uri.read_text(), token.read_text()) as connection:
            connection.send_nowait(Request(topics.BROKER_INFO, None, 1))
            (answer,) = await connection.receive()
            assert answer.payload["uri"] == instance.uri  # type: ignore[union-attr,call-overload,index]  # a response
    assert not uri.exists()
    assert not token.exists()


def test_private_file_that_cannot_be_written_is_named_and_stays_as_it_was(tmp_path: Path) -> None:
    "Limit of 8 bytes: where a disk is full, the kernel does not name the file either."
    path = tmp_path / TOKENS_FILE
    write_private(path, "before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as refused:
            write_private(path, "longer than the limit")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert refused.value.filename == str(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


async def test_instance_that_cannot_say_where_it_is_leaves_no_token(tmp_path: Path) -> None:
    (tmp_path / f"{URI_FILE}.new").mkdir()  # in the way
    given = surroundings(statedir=tmp_path, listen=True)
    with pytest.RaisesGroup(pytest.RaisesExc(OSError, match=str(tmp_path / URI_FILE))):
        async with open_instance(CONFIG, given):
            pass
    assert not (tmp_path / TOKEN_FILE).exists()


async def test_guests_keep_their_tokens_and_the_owner_gets_a_new_one(tmp_path: Path) -> None:
    tokens = iter(["owner-1", "ann", "owner-2"])
    given = surroundings(statedir=tmp_path, listen=True, make_token=tokens.__next__)
    async with opened(given) as user:
        assert (await user.call(topics.BROKER_TOKEN, {"userid": 7, "name": "ann"})) == {
            "token": "ann"
        }
    async with opened(given) as user:
        known = user.instance.tokens.authenticate
        assert known("owner-1") is None
        assert known("ann") is not None
        assert known("owner-2") is not None


async def test_second_instance_in_a_state_directory_is_refused_and_does_the_first_no_harm(
    tmp_path: Path,
) -> None:
    store = durable_store(CONFIG, tmp_path)
    given = surroundings(statedir=tmp_path, listen=True, store=store)
    async with opened(given) as user:
        with pytest.RaisesGroup(ModuleNotStarted):
            async with open_instance(CONFIG, given):
                pytest.fail("entered")
        assert (tmp_path / URI_FILE).read_text() == user.instance.uri
        assert (tmp_path / TOKEN_FILE).read_text() == user.instance.owner_token


# --- what outlives an instance and its modules


@pytest.fixture
def lasting(tmp_path: Path) -> Surroundings:
    """The same state directory each time; the real clock, since the disk does not know another."""
    return surroundings(statedir=tmp_path, store=durable_store(CONFIG, tmp_path))


async def test_restart_knows_the_jobs_of_before_and_ids_go_on(lasting: Surroundings) -> None:
    "16.schema.5; 19.fluid.2"
    with trio.fail_after(300):
        async with opened(lasting) as user:
            old = [await user.submit(run_s=0.001) for _ in range(3)]
            for jobid in old:
                await user.wait(jobid, "clean")
        async with opened(lasting) as user:
            assert await user.states() == dict.fromkeys(old, JobState.INACTIVE)
            assert await user.events(old[0]) == EVENTS
            new = await user.submit(run_s=0.001)
            assert new > max(old)
            await user.wait(new, "clean")
            assert set(await user.states()) == {*old, new}


async def test_restart_finds_what_was_pending_and_runs_it(lasting: Surroundings) -> None:
    "16.schema.5: state is recovered by replaying eventlogs."
    with trio.fail_after(300):
        async with opened(lasting) as user:
            await user.call("job-manager.queue-start", {"start": False, "nocheckpoint": True})
            pending = await user.submit(run_s=0.001)
        async with opened(lasting) as user:
            await user.wait(pending, "clean")
            events = await user.events(pending)
            assert [name for name in events if name not in ("flux-restart", "priority")] == [
                name for name in EVENTS if name != "priority"
            ]


async def test_job_manager_can_be_reloaded_while_jobs_are_pending_and_running(
    autojump_clock: MockClock,
) -> None:
    "design, job manager reload: all state from eventlogs; the others say hello again."
    async with opened(surroundings()) as user:
        running = await user.submit(run_s=HOUR, ncores=2)
        await user.wait(running, "start")
        pending = [await user.submit(run_s=10) for _ in range(3)]
        await trio.sleep(60)
        await user.instance.supervisor.reload("job-manager")
        later = await user.submit(run_s=10)
        for jobid in (running, *pending, later):
            await user.wait(jobid, "clean")
            events = await user.events(jobid)
            assert "exception" not in events
            assert [events.count(name) for name in ("submit", "alloc", "start", "free")] == [1] * 4
        assert later > max(pending) > running
        assert set((await user.states()).values()) == {JobState.INACTIVE}


async def test_running_job_keeps_running_while_the_scheduler_is_reloaded(
    autojump_clock: MockClock,
) -> None:
    "27.criteria.3: a scheduler can be reloaded without affecting running jobs."
    async with opened(surroundings()) as user:
        running = await user.submit(run_s=HOUR, ncores=2)
        await user.wait(running, "start")
        pending = await user.submit(run_s=10)
        before = await user.events(running)
        await user.instance.supervisor.reload("sched")
        await trio.sleep(60)
        assert await user.events(running) == before
        assert (await user.states())[pending] == JobState.SCHED
        await user.wait(running, "clean")
        await user.wait(pending, "clean")
        assert await user.events(running) == EVENTS


class Rejects(Plugin):
    """Rejects jobs of more than one core... by its own word."""

    name = "rejects"

    @on("job.validate")
    def validate(self, job: Job) -> None:
        if job.jobspec.ncores > 1:
            raise Reject("not today")


async def test_plugins_that_are_given_are_asked(autojump_clock: MockClock) -> None:
    async with opened(surroundings(plugins=[Rejects()])) as user:
        with pytest.raises(FluxError, match="not today"):
            await user.submit(ncores=2)
        await user.wait(await user.submit(), "clean")
        listed = await user.call("kvs.dir", {"prefix": "job"})
        directories = {key.rpartition(".")[0] for key in listed["keys"] if key.endswith("jobspec")}
        assert len(directories) == 1, "what was refused has left nothing"


async def test_revoking_a_token_ends_the_connections_that_came_with_it(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Those of the same user by the socket, and of others, go on."""
    given = surroundings(make_token=iter(["ann", "bob"]).__next__)
    async with open_instance(CONFIG, given) as instance, instance.connect() as owner:

        async def come(token: str) -> tuple[Connection, Credentials]:
            credentials = instance.tokens.authenticate(token)
            assert credentials is not None
            return connect(credentials), credentials

        def connect(credentials: Credentials) -> Connection:
            ours, theirs = memory_pair(1000)
            nursery.start_soon(instance.serve, ours, credentials)
            return theirs

        for userid, name in ((500, "ann"), (501, "bob")):
            await owner.call(topics.BROKER_TOKEN, {"userid": userid, "name": name})
        (ann, anns), (bob, _) = await come("ann"), await come("bob")
        local = connect(Credentials(500, anns.rolemask, "ann"))
        for each in (ann, bob, local):
            each.send_nowait(Request(topics.BROKER_INFO, None, 1))
            (answer,) = await each.receive()
            assert answer.errnum == 0  # type: ignore[union-attr]
        assert await owner.call(topics.BROKER_REVOKE, {"userid": 500}) == {"count": 1}
        with pytest.raises(EndOfConnection, match="the token of this connection was revoked"):
            await ann.receive()
        for each in (bob, local):
            each.send_nowait(Request(topics.BROKER_INFO, None, 2))
            await each.receive()
        late = connect(anns)  # its handshake was under way
        with pytest.raises(EndOfConnection, match="the token of this connection was revoked"):
            await late.receive()
        for each in (bob, local):
            await each.aclose()


async def test_clients_hear_that_the_instance_ends(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """What waits, what is asked meanwhile, and the end of the connection say it."""
    ours, theirs = memory_pair(1000)
    scope = trio.CancelScope()

    async def serve(instance: Instance) -> None:
        with scope:
            await instance.serve(ours, Credentials(1000, ROLE_LOCAL | ROLE_OWNER, "ann"))

    async def answers(count: int) -> list[Message]:
        found: list[Message] = []
        while len(found) < count:
            found += await theirs.receive()
        return found

    async with opened(surroundings()) as ann:
        await ann.submit(run_s=HOUR)
        nursery.start_soon(serve, ann.instance)
        theirs.send_nowait(Request(topics.JOB_DRAIN, {}, 1))
        theirs.send_nowait(Request(topics.BROKER_INFO, None, 2))
        (info,) = await answers(1)
        assert isinstance(info, Response)
        assert info.matchtag == 2
    theirs.send_nowait(Request(topics.JOB_STATS, None, 3))
    for answered in await answers(2):
        assert isinstance(answered, Response)
        assert (answered.errnum, answered.error_text) == (Errno.ENOSYS, "the instance ends")
    scope.cancel()
    with pytest.raises(EndOfConnection, match="closed: the instance ends"):
        await theirs.receive()
