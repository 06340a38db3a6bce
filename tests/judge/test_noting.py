"""A monitor with a note judges as one without, and tells which clauses judged each record."""

from __future__ import annotations

from flux_trio.judge import Monitor, load_clauses
from flux_trio.judge.rules import ALL_RULES
from flux_trio.trace import Record
from tests.explore.search.places import snapshot
from tests.support.judged import edit_payload, find_all
from tests.support.scenarios import trace_of


def test_each_record_is_noted_once_with_what_it_keeps_and_breaks() -> None:
    trace = trace_of("everyday")
    alloc = find_all(trace, "sched.alloc", "request")[0]
    broken = edit_payload(trace, alloc, id="seven")
    noted: dict[int, frozenset[str]] = {}

    def note(record: Record, clauses: frozenset[str]) -> None:
        assert record.n not in noted
        noted[record.n] = clauses

    plain = Monitor(ALL_RULES, load_clauses())
    noting = Monitor(ALL_RULES, load_clauses(), note)
    for record in broken:
        assert len(plain.observe(record)) == len(noting.observe(record))
    assert list(noted) == [record.n for record in broken]
    assert "27.alloc.2" in noted[alloc.n]
    exercised = {id_ for id_, verdict in plain.verdicts().items() if verdict != "not exercised"}
    assert frozenset().union(*noted.values()) == exercised
    assert noting.verdicts() == plain.verdicts()
    assert snapshot(noting) == snapshot(plain)
