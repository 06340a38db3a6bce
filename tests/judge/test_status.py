"""Every clause is proven, named, has a reason, or is open; the snapshot tells when that changes."""

from flux_trio.judge import Clause, load_clauses
from tests.planter.clauses.results import STATUS, statuses_now, write_status
from tests.support.clause_mentions import clause_mentions
from tests.support.clause_status import contradictions, counts, judge, load_reasons, report


def clause(id_: str) -> Clause:
    return Clause(
        id=id_,
        rfc=int(id_.partition(".")[0]),
        kind="classic",
        section="Section",
        level="SHALL",
        actor="scheduler",
        text="text",
        observable="trace",
        trigger="trigger",
        violation="violation",
        src="L1",
    )


CLAUSES = {id_: clause(id_) for id_ in ("27.alloc.1", "27.alloc.2", "28.grow.1")}


def words(text: str) -> dict[str, str]:
    """Clause id to how it stands, of a report."""
    return {line[:22].strip(): line[58:65].strip() for line in text.splitlines()}


def test_a_clause_is_named_by_a_test_has_a_reason_or_is_open():
    statuses = judge(CLAUSES, {"27.alloc.1": ["a", "b"]}, {"28.grow.1": "It cannot be."})
    assert {id_: status.word for id_, status in statuses.items()} == {
        "27.alloc.1": "test",
        "27.alloc.2": "open",
        "28.grow.1": "reason",
    }


def test_a_proof_counts_more_than_a_mention_or_a_reason():
    statuses = judge(
        CLAUSES, {"27.alloc.1": ["a"]}, {"27.alloc.1": "It cannot."}, dict.fromkeys(CLAUSES, "b")
    )
    assert {status.word for status in statuses.values()} == {"proven"}
    assert str(statuses["27.alloc.1"]).endswith(" proven b")


def test_clauses_are_counted_for_each_rfc():
    text = counts(judge(CLAUSES, {}, {"28.grow.1": "It cannot be."}, {"27.alloc.1": "test_a"}))
    assert [" ".join(line.split()) for line in text.splitlines()] == [
        "RFC 27 proven 1 test 0 reason 0 open 1 of 2",
        "RFC 28 proven 0 test 0 reason 1 open 0 of 1",
        "all proven 1 test 0 reason 1 open 1 of 3",
    ]


def test_ids_without_a_clause_and_reasons_that_are_out_of_date_are_told():
    mentions = {"27.alloc.1": ["a"], "27.aloc.2": ["b"]}
    reasons = {"27.alloc.1": "Not so.", "27.alloc.9": "Not so."}
    assert contradictions(CLAUSES, mentions, reasons) == [
        "27.aloc.2: no such clause, but b names it",
        "27.alloc.9: no such clause, but it has a reason",
        "27.alloc.1: a reason says why no test shows it, but a does",
    ]


def test_tests_and_reasons_name_clauses_that_exist_and_not_the_same():
    assert contradictions(load_clauses(), clause_mentions(), load_reasons()) == []


def test_no_clause_is_open():
    assert [id_ for id_, status in statuses_now().items() if status.word == "open"] == []


def test_the_status_file_is_up_to_date(request):
    """Rewritten by `make clause-proofs` and by `pytest --update-snapshots`.

    Which test shows a clause may change freely. A clause of which the proof or the test has changed
    is proven no more, until `make clause-proofs CLAUSE=...` has tried it again.
    """
    if request.config.getoption("--update-snapshots"):
        write_status()
    assert words(STATUS.read_text(encoding="utf-8")) == words(report(statuses_now()))
