"""The step of a plan: one function that judges a record and folds it, written for its plan.

A dozen rules and views read a record, and most of them take less time than the loop that calls them
would. So the calls of a plan are written down one after the other, as Python source, and compiled.
The step of a plan with one rule, a table of one rule, a view with parts and a view with a key is

    def step(record, seen, slots, kept):
        found = []
        said = c0(record, seen)                   # the rule
        if said is True:
            kept.add(c2)
        elif said:
            found.append((c1, said))
        for subject in c3(record, seen):          # the table
            said = c4(subject)
            ...
        after = []
        states = slots[14]                        # the view with parts
        for key, part in c5(record, seen):
            was = states.get(key)
            state = c6(was, part, record, seen)
            if state is not was:
                after.append((states, key, state))
        key0 = c7(record)                         # the view with a key
        if key0 is not None:
            states = slots[12]
            was = states.get(key0)
            state = c8(was, None, record, seen)
            if state is not was:
                ...                               # as in `put`
        ...                                       # `put` what is in `after`
        return found

where `c0`, `c1`, ... are the functions, clauses and rules. A rule or view that is skipped while a
slot is empty is below `if slots[...]:`. The source has no names of rules, so that plans of the same
shape share what is compiled.

Each view must see the states of the others before the record. So a view is folded after the views
that read it, and the parts of all views are stored last.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from flux_trio.judge.engine.rule import Apply, Broken, FormOf, Rule, Said, State, Subjects
from flux_trio.judge.engine.selector import Key
from flux_trio.judge.engine.trait import Value
from flux_trio.judge.engine.view import KeyOf, Seen, View
from flux_trio.trace import Record

SOURCES_MAX: Final = 4096  # compiled sources

VIEWS_MAX: Final = 1024  # more than there are

TABLES_MAX: Final = 64  # tables of rules whose answers are remembered
FORMS_MAX: Final = 1024  # forms of subjects in each of these

States: TypeAlias = dict[Key, State]
ALWAYS: Final = 0
"""The slot that is never empty, for rules and views that read all their records."""

Found: TypeAlias = list[tuple[Rule, Broken]]


class Keeping(Seen, Protocol):
    """Access to the states of rules and views."""

    @property
    def slots(self) -> list[States]:
        """The states, by slot."""


Step: TypeAlias = Callable[[Record, Keeping, list[States], set[str]], Found]
"""Judges a record and folds it: adds each clause that is kept to the set, and returns the
violations."""
Reader: TypeAlias = Callable[[Record, Seen], tuple[Value, ...]]
"""Returns the values of the traits of a record."""


class Asked(NamedTuple):
    """A rule that is asked about a record; `live` is the slot that must not be empty."""

    live: int
    rule: Rule
    value: Value = None
    """The value of its trait."""
    own: int = ALWAYS
    """The slot of its own states."""


class Folded(NamedTuple):
    """A view that is folded; `live` is the slot that must not be empty, `slot` its own."""

    live: int
    slot: int
    view: View
    is_parted: bool


def step_of(asked: Iterable[Asked], folded: Iterable[Folded]) -> Step:
    """Return the step of the plan with these rules and views."""
    code = _Code()
    code.add(2, "found = []")
    tables: dict[tuple[Subjects, FormOf | None], list[Asked]] = {}
    for each in asked:
        if each.rule.subjects is None:
            _write_rule(code, each)
        else:
            form = each.rule.form if each.live == ALWAYS else None
            tables.setdefault((each.rule.subjects, form), []).append(each)
    for (subjects, form), rules in tables.items():
        if form is None:
            _write_table(code, subjects, rules)
        else:
            _write_table_by_form(code, subjects, form, [each.rule for each in rules])
    folded = list(folded)
    parted = [each for each in folded if each.is_parted]
    if parted:
        code.add(2, "after = []")
    for each_view in parted:
        _write_parted(code, each_view)
    _write_keyed(code, [each for each in folded if not each.is_parted])
    if parted:
        code.add(2, "for states, key, state in after:")
        _write_put(code, 3, "key")
    code.add(2, "return found")
    return code.function("record, seen, slots, kept")


class _Code:
    """The lines of a step, and its constants."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._constants: list[Any] = []
        self._names: dict[int, str] = {}

    def add(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def name(self, constant: Any) -> str:
        """Return the name of a constant in the source."""
        found = self._names.get(id(constant))
        if found is None:
            found = self._names[id(constant)] = f"c{len(self._constants)}"
            self._constants.append(constant)
        return found

    def function(self, parameters: str) -> Callable[..., Any]:
        """Return the function with these parameters and lines."""
        names = ", ".join(f"c{place}" for place in range(len(self._constants)))
        head = [f"def make({names}):", f"    def made({parameters}):"]
        source = "\n".join([*head, *self._lines, "    return made", ""])
        made: Callable[..., Any] = _made(source)(*self._constants)
        return made


@functools.lru_cache(maxsize=SOURCES_MAX)
def _made(source: str) -> Callable[..., Callable[..., Any]]:
    """Return the function that takes the constants of a source and returns its function."""
    names: dict[str, Any] = {}
    exec(compile(source, "<step of a plan>", "exec"), names)
    make: Callable[..., Callable[..., Any]] = names["make"]
    return make


def _live(code: _Code, depth: int, slot: int) -> int:
    """Begin a block that is skipped while a slot is empty; return the depth in it."""
    if slot == ALWAYS:
        return depth
    code.add(depth, f"if slots[{slot}]:")
    return depth + 1


def reader_of(reads: Iterable[Callable[[Record, Seen], Value]]) -> Reader:
    """Return a function that returns what each of these functions returns."""
    code = _Code()
    calls = [f"{code.name(read)}(record, seen)," for read in reads]
    code.add(2, f"return ({' '.join(calls)})")
    return code.function("record, seen")


# --- rules


def _write_rule(code: _Code, asked: Asked) -> None:
    rule = asked.rule
    depth = _live(code, 2, asked.live)
    if rule.by_trait is not None:
        call = f"{code.name(rule.by_trait)}({code.name(asked.value)}, record, seen)"
    elif rule.judge is not None:
        call = f"{code.name(rule.judge)}(record, seen)"
    elif rule.check is not None:
        call = f"{code.name(rule.check)}(record, seen.facts)"
    else:
        own = f"slots[{asked.own}], {code.name(rule.key)}, {code.name(rule.apply)}"
        call = f"{code.name(applied)}({own}, record, seen)"
    code.add(depth, f"said = {call}")
    _write_answer(code, depth, rule, f"found.append(({code.name(rule)}, said))")


def _write_answer(code: _Code, depth: int, rule: Rule, broken: str) -> None:
    code.add(depth, "if said is True:")
    code.add(depth + 1, f"kept.add({code.name(rule.clause)})")
    code.add(depth, "elif said:")
    code.add(depth + 1, broken)


def _write_table(code: _Code, subjects: Subjects, asked: Iterable[Asked]) -> None:
    """Rules about the same subjects: each is asked about each subject."""
    code.add(2, f"for subject in {code.name(subjects)}(record, seen):")
    for each in asked:
        depth = _live(code, 3, each.live)
        rule = each.rule
        code.add(depth, f"said = {code.name(rule.each)}(subject)")
        first = f"{code.name(note_first)}(found, {code.name(rule)}, said)"
        _write_answer(code, depth, rule, first)


def _write_table_by_form(code: _Code, subjects: Subjects, form: FormOf, rules: list[Rule]) -> None:
    """Rules about the same subjects that judge all subjects of one form alike."""
    code.add(2, f"for subject in {code.name(subjects)}(record, seen):")
    answers = code.name(answers_of(tuple(rules)))
    code.add(3, f"form = {code.name(form)}(subject)")
    code.add(3, f"kept.update({answers}.get(form) or {answers}.asked(subject, form, found))")


class Answers(dict[Hashable, tuple[str, ...]]):
    """By form of a subject, the clauses of `rules` that such subjects keep."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        super().__init__()
        self._rules = rules

    def asked(self, subject: Any, form: Hashable | None, found: Found) -> tuple[str, ...]:
        """Ask the rules and return the clauses that are kept; note the violations in `found`.

        The answer is remembered if there are no violations.
        """
        said = [(rule, rule.each(subject)) for rule in self._rules if rule.each is not None]
        kept = tuple([rule.clause for rule, each in said if each is True])
        broken = [(rule, each) for rule, each in said if isinstance(each, Broken)]
        for rule, each in broken:
            note_first(found, rule, each)
        if form is not None and not broken:
            if len(self) >= FORMS_MAX:
                self.clear()
            self[form] = kept
        return kept


@functools.lru_cache(maxsize=TABLES_MAX)
def answers_of(rules: tuple[Rule, ...]) -> Answers:
    """Return the answers of these rules, which all steps share."""
    return Answers(rules)


def note_first(found: Found, rule: Rule, said: Broken) -> None:
    """Note the first violation of a rule in a record."""
    if not any(other is rule for other, _ in found):
        found.append((rule, said))


def applied(states: States, key_of: KeyOf, apply: Apply, record: Record, seen: Seen) -> Said:
    """Apply a rule that keeps its own states."""
    key = key_of(record)
    if key is None:
        return None
    step = apply(states.get(key), record, seen.facts)
    put(states, key, step.state)
    return step.broken or step.kept


# --- views


def _write_parted(code: _Code, folded: Folded) -> None:
    depth, view = _live(code, 2, folded.live), folded.view
    code.add(depth, f"states = slots[{folded.slot}]")
    code.add(depth, f"for key, part in {code.name(view.parts)}(record, seen):")
    code.add(depth + 1, "was = states.get(key)")
    code.add(depth + 1, f"state = {code.name(view.fold)}(was, part, record, seen)")
    code.add(depth + 1, "if state is not was:")
    code.add(depth + 2, "after.append((states, key, state))")


def _write_keyed(code: _Code, folded: list[Folded]) -> None:
    """Views with one key in a record, each after the views that read it."""
    keys: dict[KeyOf, str] = {}
    for each in _readers_first(folded):
        key_of = each.view.key
        assert key_of is not None
        if key_of not in keys:
            keys[key_of] = f"key{len(keys)}"
            code.add(2, f"{keys[key_of]} = {code.name(key_of)}(record)")
        key = keys[key_of]
        code.add(2, f"if {key} is not None:")
        depth = _live(code, 3, each.live)
        code.add(depth, f"states = slots[{each.slot}]")
        code.add(depth, f"was = states.get({key})")
        code.add(depth, f"state = {code.name(each.view.fold)}(was, None, record, seen)")
        code.add(depth, "if state is not was:")
        _write_put(code, depth + 1, key)


def _write_put(code: _Code, depth: int, key: str) -> None:
    """Store a state, as `put` does."""
    code.add(depth, "if state is None:")
    code.add(depth + 1, f"states.pop({key}, None)")
    code.add(depth, "else:")
    code.add(depth + 1, f"states[{key}] = state")


def _readers_first(folded: list[Folded]) -> list[Folded]:
    """Sort views so that each comes after all that read it."""
    ordered: list[Folded] = []
    left = folded
    while left:
        read = {view for each in left for view in read_by(each.view)}
        ordered += [each for each in left if each.view not in read]
        left = [each for each in left if each.view in read]
    return ordered


@functools.lru_cache(maxsize=VIEWS_MAX)
def read_by(view: View) -> frozenset[View]:
    """Return the views that a view reads, directly or through another one."""
    return frozenset(view.reads).union(*map(read_by, view.reads))


def put(states: States, key: Key, state: State) -> None:
    """Store a state; None removes it."""
    if state is None:
        states.pop(key, None)
    else:
        states[key] = state
