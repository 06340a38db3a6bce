"""What a shell offers for a word that is being typed: names that the instance of the user knows.

Each function of `click`'s form (context, parameter, the word so far) is given as `shell_complete`.
What speaks with the instance is imported when it is needed: `--help` must be quick.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from flux_trio.cli.terminal.errors import CommandError

if TYPE_CHECKING:
    from flux_trio.client import Client

    Fetch: TypeAlias = Callable[[Client], Awaitable[Iterable[str]]]

T = TypeVar("T")

OFFERED_MAX: Final = 100
PATIENCE_S: Final = 1.0  # the user waits at the keyboard

Offer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def ask(fetch: Callable[[Client], Awaitable[Iterable[T]]]) -> list[T]:
    """Return what `fetch` gets from the instance; nothing if none answers within PATIENCE_S."""
    from flux_trio.cli.connection.session import with_client

    async def in_time(client: Client) -> list[T]:
        import anyio

        with anyio.move_on_after(PATIENCE_S):
            return list(await fetch(client))
        return []

    try:
        return with_client(in_time)
    except CommandError:
        return []


def _offering(fetch: Fetch, *, lists: bool = False) -> Offer:
    """Offer the names that `fetch` returns; if it `lists`, for the part after the last comma."""

    def offer(_ctx: click.Context, _param: click.Parameter, word: str) -> list[CompletionItem]:
        head, comma, last = word.rpartition(",") if lists else ("", "", word)
        names = [name for name in ask(fetch) if name.startswith(last)]
        return [CompletionItem(f"{head}{comma}{name}") for name in sorted(names)[:OFFERED_MAX]]

    return offer


async def _queues(client: Client) -> Iterable[str]:
    from flux_trio.messages import topics

    return (await client.call(topics.JOB_QUEUE_LIST))["queues"]  # type: ignore[no-any-return]


async def _hosts(client: Client) -> Iterable[str]:
    from flux_trio.formats import ResourceSet
    from flux_trio.messages import topics

    status = await client.call(topics.RESOURCE_STATUS)
    return ResourceSet.parse(status["R"]).hostnames


async def _modules(client: Client) -> Iterable[str]:
    from flux_trio.messages import topics

    return [each["name"] for each in (await client.call(topics.MODULE_LIST))["modules"]]


async def _plugins(client: Client) -> Iterable[str]:
    from flux_trio.messages import topics

    return (await client.call(topics.JOB_JOBTAP_LIST))["plugins"]  # type: ignore[no-any-return]


queue = _offering(_queues)
queues = _offering(_queues, lists=True)
hosts = _offering(_hosts, lists=True)
module = _offering(_modules)
loaded_plugin = _offering(_plugins)


def plugin(_ctx: click.Context, _param: click.Parameter, word: str) -> list[CompletionItem]:
    """Offer the plugins that are found by their names; else the shell looks for files."""
    import os

    from flux_trio.jobtap.loading import search_path

    found = {
        path.stem.replace("_", "-")
        for directory in search_path(os.environ)
        for path in directory.glob("*.py")
        if directory.name != "builtins" and path.stem != "__init__"
    }
    names = sorted(name for name in found if name.startswith(word))
    return [CompletionItem(name) for name in names] or [CompletionItem(word, type="file")]
