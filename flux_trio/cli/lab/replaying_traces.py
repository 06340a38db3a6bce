"""The recorded instance of `flux-trio replay`: its cores replayed from a trace, turn by turn."""

from __future__ import annotations

import os
import stat
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from flux_trio.cli.lab.replaying import MARGIN
from flux_trio.cli.terminal.errors import Unusable
from flux_trio.formats import FormatError
from flux_trio.judge import Monitor, load_clauses
from flux_trio.judge.rules import edition_of
from flux_trio.lab.properties.world_judge import clause_rules
from flux_trio.lab.stories.states import changed_lines, state_lines
from flux_trio.lab.world.recorded import CoreNotMade, Difference, RecordedInstance, Unreplayable
from flux_trio.trace import Kind, Record, read_trace, text_lines
from flux_trio.views import telling

_FORM: Final = "JSON lines"
NO_TURNS: Final = (
    "a replay needs the turns of the cores, and the trace has none of them; "
    "`flux-trio start --trace` writes them"
)


def open_trace(path: Path) -> BufferedReader | None:
    """Open a file if it is a trace and no plan: it begins as JSON, or is an empty file.

    An empty `.toml` is a plan. A trace may have a byte order mark.
    Raises Unusable for a pipe or a device that is no trace, since a plan is read more than once.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
            head = file.peek(len(BOM_UTF8) + 1)  # a pipe still has it for who reads the trace
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        except OSError:
            return None
        if head.removeprefix(BOM_UTF8)[:1] == b"{" or (not head and path.suffix != ".toml"):
            stack.pop_all()
            return file
        if not is_regular:
            expected = "a trace as JSON lines, or a plan in a file that can be read twice"
            raise Unusable(f"{path}: expected {expected}, got a pipe or a device")
    return None


class TraceReplay:
    """The cores of a trace; `looks` is called after each turn, and at the end.

    When `looks` returns False, nothing more is replayed. Clauses are judged with `judged`; the
    states of cores are compared before and after each turn with `shown`.
    """

    def __init__(
        self,
        file: BinaryIO,
        looks: Callable[[TraceReplay], bool],
        *,
        judged: bool = False,
        shown: bool = False,
    ) -> None:
        self.instance = RecordedInstance()
        self._file = file
        self._looks = looks
        self._is_judged = judged
        self._monitor: Monitor | None = None  # from the first record on
        self._news: list[str] | None = [] if shown else None
        self._t_zero: float | None = None
        self.is_at_end = False
        """Whether the whole trace was replayed."""
        self.cut_line = 0
        """The number of the last line, if it was incomplete and left out."""
        self._taken: dict[str, list[Record]] = {}  # received and not yet in a turn, by party

    @property
    def nsteps(self) -> int:
        """How many turns were replayed."""
        return self.instance.nturns

    @property
    def states(self) -> dict[str, dict[str, str]]:
        """The state of each core as it is now, by module."""
        return {name: state_lines(each.core.dump()) for name, each in self.instance.cores.items()}

    def to_the_end(self) -> Difference | None:
        """Replay to the end or the first difference, which is returned.

        Raises Unusable, which says why the trace cannot be replayed. What `looks` raises, such as
        the error of an output that is full, is no error of the trace and comes as it is.
        """
        found = self._replay(self._records())
        if not self.nsteps:
            raise Unusable(f"{self._file.name}: {NO_TURNS}")
        return found

    def _records(self) -> Iterator[Record]:
        lines = text_lines(self._file.readline)
        try:
            source = read_trace(lines, turns=True, cut=partial(setattr, self, "cut_line"))
            if source.form != _FORM:
                raise Unusable(f"{self._file.name}: {NO_TURNS}")
            yield from source.records
        except OSError as error:
            raise Unusable(f"{self._file.name}: {error.strerror}") from None
        except FormatError as error:
            raise self._unreplayable(error) from None

    def _unreplayable(self, error: Exception) -> Unusable:
        return Unusable(f"{self._file.name}: the trace cannot be replayed: {error}")

    def _replay(self, records: Iterator[Record]) -> Difference | None:
        for record in records:
            is_turn = record.kind == Kind.TURN
            if is_turn and self.nsteps and not self._looks(self):
                return None  # the turn before has ended here
            if self._is_judged and not is_turn:
                if self._monitor is None:
                    self._monitor = Monitor(clause_rules(edition_of(record)), load_clauses())
                self._monitor.observe(record)
            before = self._state_of(record) if is_turn else {}
            try:
                difference = self.instance.observe(record)
            except CoreNotMade as error:
                raise Unusable(f"{self._file.name}: {error}") from None
            except (FormatError, UnicodeError, Unreplayable) as error:
                raise self._unreplayable(error) from None
            if self._news is not None:
                self._note_news(record, before)
            if difference is not None:
                self._looks(self)
                return difference
        self.is_at_end = not self.nsteps or self._looks(self)
        return None

    def broken_so_far(self) -> set[str]:
        """Return the clauses that are broken up to here."""
        violations = () if self._monitor is None else self._monitor.violations
        return {each.clause for each in violations}

    def news(self) -> Iterator[str]:
        """Yield lines on the turn: what was taken, what changed in the state, what was done."""
        if self._news is not None:
            news, self._news = self._news, []
            yield from news

    def whole_state(self, module: str) -> Iterator[str]:
        """Yield the state of a core, a line for each place."""
        for place, value in self.states.get(module, {}).items():
            yield f"{MARGIN}{module}: {place} = {value}"

    def _state_of(self, record: Record) -> dict[str, str]:
        core = self.instance.cores.get(record.party)
        return {} if core is None or self._news is None else state_lines(core.core.dump())

    def _note_news(self, record: Record, before: dict[str, str]) -> None:
        assert self._news is not None
        if self._t_zero is None:
            self._t_zero = record.t
        if record.kind == Kind.RECV:  # told with the turn that takes it
            self._taken.setdefault(record.party, []).append(record)
            return
        if record.kind != Kind.TURN:
            self._news.append(telling([record], self._t_zero))
            return
        for taken in self._taken.pop(record.party, []):
            self._news.append(telling([taken], self._t_zero))
        for line in _others_in(record.data or {}):
            self._news.append(f"{MARGIN}{record.party} takes {line}")
        for line in changed_lines(before, self._state_of(record)):
            self._news.append(f"{MARGIN}{record.party}: {line}")
        core = self.instance.cores.get(record.party)
        if core is not None and core.raised:
            self._news.append(f"{MARGIN}{record.party} raises {core.raised}")


def _others_in(data: dict[str, Any]) -> Iterator[str]:
    """Yield the inputs of a turn that are no messages."""
    if "core" in data:
        yield "its start"
    for each in data.get("inputs", ()):
        match each:
            case ["timer", *_, key]:
                yield f"the timer {msgspec.json.encode(key).decode()}"
            case ["object", _, str(name), *_]:
                yield name.rpartition(":")[2]
