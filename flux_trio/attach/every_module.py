"""What every module of flux-core answers, whatever it does."""

from __future__ import annotations

import resource

from flux_trio.messages import Message, Request, Response, respond


def answer_of_module(message: Message, rank: str) -> Response | None:
    """Return the answer to what every module of flux-core answers; None for another message."""
    if not isinstance(message, Request):
        return None
    match message.topic.partition(".")[2]:
        case "ping":
            payload = message.payload if isinstance(message.payload, dict) else {}
            who = {"userid": message.userid, "rolemask": message.rolemask}
            hops = "!".join(hop[:8] for hop in message.routes)
            place = int(rank) if rank.isdigit() else 0
            return respond(message, {**payload, "route": hops, **who, "rank": place})
        case "rusage":
            used = resource.getrusage(resource.RUSAGE_SELF)
            names = [name for name in dir(used) if name.startswith("ru_")]
            return respond(message, {name[3:]: getattr(used, name) for name in names})
    return None
