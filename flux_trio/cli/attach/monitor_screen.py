"""The screen of `flux-trio attach monitor`: what is kept, broken, due and known, and its keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from time import localtime, strftime
from typing import TYPE_CHECKING, Final

import trio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from flux_trio.cli.terminal.columns import short_duration
from flux_trio.cli.terminal.keys import keys, read_key
from flux_trio.formats import printable
from flux_trio.formats.spelling import spelled
from flux_trio.judge import Verdict

if TYPE_CHECKING:
    from flux_trio.attach.monitor import Monitor
    from flux_trio.judge import Judgement, Violation

_STYLES: Final = {Verdict.KEPT: "green", Verdict.BROKEN: "bold red", Verdict.KNOWN: "yellow"}


async def shown_live(watched: Monitor, refresh_s: float, *, color: bool) -> None:
    """Show the screen until the key q."""
    console = Console(no_color=not color, highlight=False)
    with keys(), Live(console=console, screen=True, auto_refresh=False) as screen_of:
        async with trio.open_nursery() as nursery:
            while True:
                screen_of.update(screen(watched, console.height, console.width), refresh=True)
                key = await read_key(refresh_s)
                if key in ("q", "\x04"):
                    break
                if key == "a":
                    nursery.start_soon(watched.audit, lambda _found: None)
            nursery.cancel_scope.cancel()


def screen(watched: Monitor, height: int, width: int) -> RenderableType:
    """Return the whole in at most `height` lines of `width`."""
    judgement = watched.judge.judgement()
    lines = [*_head(watched, judgement), *islice(_found(watched, judgement), height)]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
        line.truncate(width, overflow="ellipsis")
    return Group(*lines[:height])


def _head(watched: Monitor, judgement: Judgement) -> Iterator[Text]:
    judge = watched.judge
    since = short_duration(watched.now() - watched.began)
    yield Text(f"flux-core {printable(watched.version)} at {printable(watched.uri)}", style="bold")
    if watched.warning:
        yield Text(watched.warning, style="yellow")
    lost = f", {judge.nlost} messages not judged" if judge.nlost else ""
    waiting = f", {watched.nwaiting} wait" if watched.nwaiting else ""
    yield Text(f"joined {since} ago, {judge.nrecords} records{waiting}{lost}")
    counts = Counter(judgement.verdicts.values())
    yield Text("  ").join(
        Text(f"{verdict.value} {counts[verdict]}", style=_STYLES.get(verdict, ""))
        for verdict in Verdict
    )
    yield Text(_audit_line(watched) + "   keys: a audit, q quit", style="dim")


def _audit_line(watched: Monitor) -> str:
    if watched.not_audited:
        return f"not audited: {printable(watched.not_audited)}"
    if watched.audited_at is None:
        return "not audited"
    return f"audited at {strftime('%H:%M:%S', localtime(watched.audited_at))}"


def _found(watched: Monitor, judgement: Judgement) -> Iterator[Text]:
    causes = [each for each in judgement.violations if each.cause is None]
    yield from _section("broken", "bold red", causes, watched.judge.counts)
    yield from _section("advice", "yellow", judgement.advice, watched.judge.counts)
    yield from _section("unexplained", "bold magenta", judgement.unexplained, watched.judge.counts)
    due = watched.judge.due()
    if due:
        yield Text("due", style="bold")
    for debt, age in sorted(due, key=lambda each: -each[1]):
        yield Text(f"  {debt.clause:16} {short_duration(age):>5}  {printable(spelled(debt.text))}")
    occurred = [each for each in judgement.known if each.violations]
    if occurred:
        yield Text("known departures", style="yellow")
    for departure in occurred:
        yield Text(f"  {departure.clause:16} {len(departure.violations):5}  {departure.why}")


def _section(
    title: str, style: str, found: Iterable[Violation], counts: Mapping[str, int]
) -> Iterator[Text]:
    """Yield a line for each clause: how often it was broken, and how last."""
    last = {each.clause: each for each in found}
    if last:
        yield Text(title, style=style)
    for clause, each in last.items():
        who = f"{each.blamed}: " if each.blamed else ""
        count = max(counts.get(clause, 0), 1)
        yield Text(f"  {clause:16} {count:5}  {printable(who + spelled(each.text))}")
