"""The job manager under Trio: its core, and the plugins that the core asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, assert_never

import trio

from flux_trio.broker import Handle
from flux_trio.config import Config
from flux_trio.jobtap import Given, Plugin, PluginHost
from flux_trio.messages import topics
from flux_trio.protocols import PluginReplayed
from flux_trio.services.job_manager.core import JobManagerCore
from flux_trio.services.job_manager.entrance import FindUser, User, UserFound
from flux_trio.services.job_manager.user_database import unix_user
from flux_trio.services.runner import run_core


async def run(
    handle: Handle,
    plugins: Iterable[Plugin],
    config: Config | None = None,
    users: Callable[[int], Awaitable[User]] = unix_user,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `job-manager.*` until cancelled, asking `plugins` in order.

    `config` has the queues, `users` are asked by userid who may use them.
    """
    async with trio.open_nursery() as nursery:  # owns what plugins run

        def note(kind: str, data: dict[str, Any]) -> None:
            if not core.note(kind, data):
                handle.note(kind, data)

        given = Given(
            tell=handle.post,
            note=note,
            now=handle.now,
            log=handle.log,
            rpc=handle.call,
            owner=handle.userid,
            users=users,
        )
        host = PluginHost(nursery, given, config)
        core = JobManagerCore(handle.userid, host, config)
        host.jobs = core.jobs

        async def find_user(userid: int) -> None:
            handle.post(UserFound(userid, await users(userid)))

        def perform(action: PluginReplayed | FindUser) -> None:
            match action:
                case PluginReplayed():
                    host.replayed(action)
                case FindUser():
                    nursery.start_soon(find_user, action.userid)
                case _:
                    assert_never(action)

        handle.register(topics.JOB_MANAGER)
        for plugin in plugins:
            await host.load(plugin)
        try:
            await run_core(handle, core, perform, task_status=task_status)
        finally:
            host.close()
