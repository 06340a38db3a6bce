"""R as JSON objects: the RFC's example, and valid ones but for what a test gives."""

from typing import Any

# The example of RFC 20 as its prose tells it: four nodes of 48 cores and 8 gpus, 8 slots each.
EXAMPLE = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "19-22", "children": {"core": "0-47", "gpu": "0-7"}}],
        "nodelist": ["node[186-189]"],
        "nslots": 32,
        "starttime": 1676560542,
        "expiration": 1676562342,
    },
}


def r_object(*entries: object, **execution: object) -> dict[str, Any]:
    """R with this R_lite (ranks 0-3 if none) and other keys of execution; None removes one."""
    whole: dict[str, object] = {
        "R_lite": list(entries) or [entry("0-3", "0-3")],
        "nodelist": ["node[0-3]"],
        **execution,
    }
    return {
        "version": 1,
        "execution": {key: value for key, value in whole.items() if value is not None},
    }


def entry(rank: object, core: object, **children: object) -> dict[str, object]:
    return {"rank": rank, "children": {"core": core, **children}}
