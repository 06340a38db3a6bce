from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import anyio
import pytest

from flux_trio.client import Client, open_client
from tests.support.instance import DEADLINE_S
from tests.support.small_instance import TOKEN, SmallInstance, run_small_instance

Run = Callable[[Callable[[Client], Awaitable[None]]], None]


@pytest.fixture(scope="module")
def shared() -> Iterator[SmallInstance]:
    with run_small_instance() as instance:
        yield instance


@pytest.fixture
def instance(shared: SmallInstance) -> SmallInstance:
    shared.requests.clear()
    return shared


@pytest.fixture(params=["trio", "asyncio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(instance: SmallInstance, backend: str) -> Run:
    """Run an async function with a client of the instance; each event loop has its own door."""
    at = (instance.local_uri, "") if backend == "trio" else (instance.uri, TOKEN)

    def run(test: Callable[[Client], Awaitable[None]]) -> None:
        async def main() -> None:
            with anyio.fail_after(DEADLINE_S):
                async with open_client(*at) as client:
                    await test(client)

        with instance.one_served():
            anyio.run(main, backend=backend)

    return run
