"""Jobspecs as JSON objects, valid except for what a test gives, and what is said of bad ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from flux_trio.formats import FormatError, Jobspec

DATA = Path(__file__).parents[1] / "data/jobspecs"


def rfc25(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DATA / f"rfc25-{name}.json").read_text())
    return loaded


def core(count: object = 1, **more: object) -> dict[str, object]:
    return {"type": "core", "count": count, **more}


def gpu(count: object = 1, **more: object) -> dict[str, object]:
    return {"type": "gpu", "count": count, **more}


def slot(count: object, *inside: object, label: object = "s", **more: object) -> dict[str, object]:
    return {"type": "slot", "count": count, "label": label, "with": list(inside), **more}


def node(count: object, *inside: object, **more: object) -> dict[str, object]:
    held = {"with": list(inside)} if inside else {}
    return {"type": "node", "count": count, **held, **more}


def jobspec(*resources: object, version: object = 1, **changes: object) -> dict[str, Any]:
    """A valid jobspec, except for what is given."""
    return {
        "version": version,
        "resources": list(resources) or [slot(2, core())],
        "tasks": [{"command": ["app"], "slot": "s", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0}},
        **changes,
    }


def system(**attributes: object) -> dict[str, Any]:
    named = {key.replace("_", "-"): value for key, value in attributes.items()}
    return jobspec(attributes={"system": {"duration": 0, **named}})


def task(**changes: object) -> dict[str, object]:
    return {"command": ["app"], "slot": "s", "count": {"per_slot": 1}, **changes}


def complaint(value: object) -> str:
    with pytest.raises(FormatError) as caught:
        Jobspec.parse(value)
    text = str(caught.value)
    assert text.startswith("jobspec")
    return text.removeprefix("jobspec").removeprefix(".").removeprefix(": ")
