"""Messages of modules as text, as `flux module trace` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_trio.cli.terminal.shown_values import local_time
from flux_trio.formats import printable
from flux_trio.messages import service_of, topics
from flux_trio.trace.kvs import with_texts
from flux_trio.trace.traced_message import MARKS, outcome_text, shown_payload, size_text


def trace_line(traced: Mapping[str, Any], name_width: int = 0) -> str:
    """Return local time, module, direction, type, topic and size; a payload or error goes below.

    `traced` is one response of module.trace.
    """
    if "lost" in traced:
        return f"({traced['lost']} messages are missing here: they came too fast)"
    time = local_time(traced["timestamp"]).isoformat(timespec="milliseconds")
    words = [
        time,
        printable(traced["name"]).rjust(name_width),
        traced["prefix"],
        MARKS[traced["type"]],
        printable(traced["topic"]),
        f"[{size_text(traced['payload_size'])}]",
    ]
    if traced["type"] == "response":
        words.append(outcome_text(traced["errnum"]))
    return " ".join(words) + _below(traced)


def _below(traced: Mapping[str, Any]) -> str:
    if traced.get("errstr"):
        return f"\n{printable(traced['errstr'])}"
    if "payload" not in traced:
        return ""
    is_kvs = service_of(traced["topic"]) in topics.KVS_SERVICES
    payload = with_texts(traced["payload"]) if is_kvs else traced["payload"]
    return f"\n{shown_payload(payload)}"
