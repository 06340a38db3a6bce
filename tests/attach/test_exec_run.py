"""What a broker is asked before our execution service joins it, and what it may not answer."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flux_trio.attach.exec.run import run
from flux_trio.attach.handle import serve
from flux_trio.broker import ServiceExit
from flux_trio.messages import FluxError, Request
from flux_trio.process.groups import unwrapping
from tests.support.flux_peer import broker

ATTRIBUTES = {
    "rank": "0",
    "security.owner": str(os.getuid()),
    "content.hash": "sha1",
    "jobid-path": "/",
    "local-uri": "local:///x",
    "statedir": "/nonexistent",
}


async def joined(path: Path, answers: dict[str, Any] | None = None, **attributes: str) -> None:
    """Serve at a broker with these attributes and answers; `_` stands for a dot of their names."""
    values = {name: attributes.get(name.replace(".", "_"), ATTRIBUTES[name]) for name in ATTRIBUTES}

    def attribute(request: Request) -> Any:
        payload: Any = request.payload
        value = values.get(payload["name"])
        return (2, None) if not value else {"value": value, "flags": 1}

    known = {"attr.get": attribute, "config.get": {}}
    with unwrapping(ServiceExit, FluxError):
        async with broker(path / "local-0", known | (answers or {})) as peer:
            await serve(peer.uri, "exec", partial(run, on_ready=lambda _: None))


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"rank": "3"}, "expected the broker of rank 0, where the job manager is, got 3"),
        ({"security_owner": "4"}, f"expected to run as the instance's owner 4, got {os.getuid()}"),
        ({"content_hash": "md5"}, "content.hash: expected sha1 or sha256, got 'md5'"),
        ({"statedir": ""}, "attr.get: the broker has no attribute statedir"),
    ],
)
async def test_broker_at_which_it_cannot_serve_is_left(
    tmp_path: Path, attributes: dict[str, str], text: str
) -> None:
    with pytest.raises(ServiceExit) as error:
        await joined(tmp_path, **attributes)
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"exec": {"kill-timeout": "soon"}}, "config.get: exec.kill-timeout: expected "),
        ({"exec": 5}, "config.get: payload: Expected `object`, got `int` - at `$.exec`"),
    ],
)
async def test_wrong_configuration_is_named(tmp_path: Path, config: Any, text: str) -> None:
    with pytest.raises(FluxError) as error:
        await joined(tmp_path, {"config.get": config})
    assert error.value.text.startswith(text)


async def test_second_service_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(FluxError, match=r"service\.add: flux-trio-exec: File exists"):
        await joined(tmp_path, {"service.add": (17, None)})
