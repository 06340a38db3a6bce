"""job-info: reading a job's stored data, and following its eventlogs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.cores.job_list.info import LOOKUP_KEYS_MAX, OUTPUT_PIECES_MAX
from flux_trio.cores.job_list.watches import HELD_CHARS_MAX, READS_MAX, WATCHES_OF_USER_MAX
from flux_trio.formats import ResourceSet, format_event, format_fluid, job_key
from flux_trio.messages import Errno, Flag, Request, respond_error
from tests.support.asking import GUEST_USERID, asked, asked_by_guest, gone
from tests.support.counting import count_steps
from tests.support.eventlogs import ending, event, inactive, pending, running
from tests.support.listing import ListedJobs

LOOKUP = "job-info.lookup"
WATCH = "job-info.eventlog-watch"
CANCEL = "job-info.eventlog-watch-cancel"
R1 = ResourceSet.build([(0, 1, 0)], lambda rank: "node0")


@pytest.fixture
def listed() -> ListedJobs:
    """A job list that has started; job 1 is the guest's, pending and stored."""
    listed = ListedJobs()
    listed.store_log(1, pending(userid=GUEST_USERID))
    listed.store_jobspec(1)
    listed.start()
    return listed


def watch(listed: ListedJobs, path: str = "eventlog", tag: int = 9) -> list[tuple[int, Any]]:
    return listed.ask(WATCH, {"id": 1, "path": path}, streaming=True, tag=tag)


def lines(responses: list[tuple[int, Any]]) -> list[str]:
    """The names of the events of a stream that goes on."""
    assert all(errnum == 0 for errnum, _ in responses)
    return [msgspec.json.decode(payload["event"])["name"] for _, payload in responses]


# --- lookup


def test_lookup_reads_every_key_that_is_asked_for(listed: ListedJobs) -> None:
    ((errnum, found),) = listed.ask(LOOKUP, {"id": 1, "keys": ["jobspec", "eventlog", "jobspec"]})
    assert errnum == 0
    assert found["id"] == 1
    assert found["jobspec"] == listed.kvs.value(job_key(1, "jobspec"))
    assert found["eventlog"] == listed.kvs.value(job_key(1, "eventlog"))
    assert listed.ask(LOOKUP, {"id": 1, "keys": []}) == [(0, {"id": 1})]


def test_lookup_is_for_the_jobs_user_and_the_owner(listed: ListedJobs) -> None:
    """16.schema.12: guests reach a job's data through this service, and only their own."""
    mine = asked_by_guest(LOOKUP, {"id": 1, "keys": ["jobspec"]})
    ((errnum, _),) = listed.request(mine)
    assert errnum == 0
    other = msgspec.structs.replace(mine, userid=GUEST_USERID + 1)
    text = "access is restricted to job/instance owner"
    assert listed.request(other) == [(Errno.EPERM, text)]


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"id": 2, "keys": ["jobspec"]}, (Errno.ENOENT, "unknown job id")),
        ({"id": 1, "keys": ["jobspec", "R", "J"]}, (Errno.ENOENT, "R: key not found")),
    ],
)
def test_missing_job_or_key_is_named(
    listed: ListedJobs, payload: Any, error: tuple[int, str]
) -> None:
    assert listed.ask(LOOKUP, payload) == [error]


def test_key_that_is_no_key_is_refused_by_name(listed: ListedJobs) -> None:
    ((errnum, text),) = listed.ask(LOOKUP, {"id": 1, "keys": ["..jobspec"]})
    assert errnum == Errno.EINVAL
    assert text.startswith("..jobspec: ")


def test_current_applies_the_updates_of_the_eventlog(listed: ListedJobs) -> None:
    listed.store(1, "R", R1.to_json())
    update = event("jobspec-update", **{"attributes.system.duration": 5.0})
    listed.tell_all(1, [update, event("priority", priority=1), event("alloc")], place=4)
    ask = {"id": 1, "keys": ["jobspec", "R", "eventlog"], "current": True}
    ((_, found),) = listed.ask(LOOKUP, ask)
    assert msgspec.json.decode(found["jobspec"])["attributes"]["system"]["duration"] == 5.0
    assert ResourceSet.parse(found["R"].encode()) == R1
    listed.tell((1, 7, event("resource-update", expiration=7777.0)))
    ((_, found),) = listed.ask(LOOKUP, ask)
    assert ResourceSet.parse(found["R"].encode()).expiration == 7777.0
    ((_, found),) = listed.ask(LOOKUP, ask | {"current": False})
    assert found["jobspec"] == listed.kvs.value(job_key(1, "jobspec"))


def test_stored_value_that_updates_do_not_fit_is_an_error(listed: ListedJobs) -> None:
    listed.commit(["put", job_key(1, "R"), "not JSON"])
    ((errnum, text),) = listed.ask(LOOKUP, {"id": 1, "keys": ["R"], "current": True})
    assert errnum == Errno.EINVAL
    assert text.startswith("R: cannot apply its updates: ")


# --- eventlog-watch


def test_watch_tells_what_was_and_what_comes(listed: ListedJobs) -> None:
    told = watch(listed)
    assert lines(told) == ["submit", "validate", "depend", "priority"]
    assert told[0] == (0, {"event": format_event(pending(userid=GUEST_USERID)[0])[:-1]})
    listed.store_log(1, [event("alloc"), event("start")])
    assert lines(listed.take_sent()) == ["alloc", "start"]


def test_watch_ends_when_the_job_is_inactive(listed: ListedJobs) -> None:
    watch(listed)
    rest = inactive()[4:]
    listed.store_log(1, rest)
    told = lines(listed.take_sent())
    listed.tell_all(1, rest, place=4)
    assert told == [each.name for each in rest]
    assert listed.take_sent() == [(Errno.ENODATA, None)]
    listed.commit(["append", job_key(1, "eventlog"), "more\n"])
    assert listed.take_sent() == []


def test_other_eventlog_is_sent_whole_before_the_end(listed: ListedJobs) -> None:
    path = "guest.exec.eventlog"
    assert watch(listed, path) == []  # it does not exist yet
    listed.commit(["append", job_key(1, path), format_event(event("init"))])
    assert lines(listed.take_sent()) == ["init"]
    listed.tell_all(1, inactive()[4:], place=4)
    assert listed.take_sent() == [(Errno.ENODATA, None)]


def test_what_the_watch_has_not_told_by_the_end_is_told(listed: ListedJobs) -> None:
    path = "guest.output"
    watch(listed, path)
    listed.kvs.commit(["append", job_key(1, path), format_event(event("data"))])  # still on its way
    listed.tell_all(1, inactive()[4:], place=4)
    *told, end = listed.take_sent()
    assert lines(told) == ["data"]
    assert end == (Errno.ENODATA, None)


def test_line_is_told_when_it_is_whole(listed: ListedJobs) -> None:
    path = "guest.output"
    watch(listed, path)
    line = format_event(event("data"))
    listed.commit(["append", job_key(1, path), line[:5]])
    assert listed.take_sent() == []
    listed.commit(["append", job_key(1, path), line[5:] + line[:3]])
    assert lines(listed.take_sent()) == ["data"]


def test_eventlog_that_never_came_is_an_empty_stream(listed: ListedJobs) -> None:
    watch(listed, "guest.output")
    listed.tell_all(1, inactive()[4:], place=4)
    assert listed.take_sent() == [(Errno.ENODATA, None)]


def test_watch_can_be_canceled(listed: ListedJobs) -> None:
    """6.cancel.1: by its sender, with its matchtag; 6.cancel.3: it is answered ECANCELED."""
    watch(listed, tag=9)
    assert listed.ask(CANCEL, {"matchtag": 9}, by="bob") == [
        (Errno.ENOENT, f"{CANCEL}: no stream with matchtag 9")
    ]
    assert listed.ask(CANCEL, {"matchtag": 9}) == [(Errno.ECANCELED, None), (0, {})]
    listed.store_log(1, [event("alloc")])
    assert listed.take_sent() == []


def test_watch_of_a_peer_that_is_gone_is_dropped(listed: ListedJobs) -> None:
    watch(listed, tag=9)
    listed.ask(WATCH, {"id": 1}, streaming=True, by="bob")
    listed.turn(gone("job-info", "alice"))
    assert listed.take_sent() == []
    listed.store_log(1, running()[4:])
    assert lines(listed.take_sent()) == ["alloc", "start"]  # bob's


def test_watches_of_one_job_end_each_by_itself(listed: ListedJobs) -> None:
    watch(listed, tag=8)
    watch(listed, tag=9)
    listed.ask(CANCEL, {"matchtag": 8})
    listed.tell_all(1, inactive()[4:], place=4)
    sent = listed.take_sent()
    assert len(lines(sent[:-1])) == 6
    assert sent[-1] == (Errno.ENODATA, None)


def test_watch_is_dropped_while_its_last_lines_are_read(listed: ListedJobs) -> None:
    watch(listed)
    (cancel, lookup) = _inactive_turn(listed)
    listed.turn(gone("job-info", "alice"))
    listed.do([cancel, lookup])
    assert listed.take_sent() == []


def test_watch_tells_that_the_store_is_gone(listed: ListedJobs) -> None:
    watch(listed)
    _, lookup = _inactive_turn(listed)
    listed.turn(_error(lookup, Errno.ENOSYS, "kvs is gone"))
    assert listed.take_sent() == [(Errno.ENOSYS, "kvs is gone")]


def test_watch_of_a_job_that_is_removed_ends(listed: ListedJobs) -> None:
    watch(listed)
    (end,) = listed.kvs.commit(["unlink", "job"])
    (answer,) = listed.core.turn(0.0, [end])  # and no cancel of what has ended
    listed.do([answer])
    ((errnum, text),) = listed.take_sent()
    assert errnum == Errno.ENOENT
    assert "unlinked" in text


@pytest.mark.parametrize(
    ("request_", "errnum", "text"),
    [
        (asked(WATCH, {"id": 1}), Errno.EPROTO, "expected the streaming flag"),
        (asked(WATCH, {"id": 2}, streaming=True), Errno.ENOENT, "unknown job id"),
    ],
)
def test_watch_that_cannot_be_opened_says_why(
    listed: ListedJobs, request_: Request, errnum: int, text: str
) -> None:
    ((got, why),) = listed.request(request_)
    assert got == errnum
    assert text in why


def test_watch_is_for_the_jobs_user_and_the_owner(listed: ListedJobs) -> None:
    """21.criteria.2"""
    assert len(lines(watch(listed))) == 4
    mine = asked_by_guest(WATCH, {"id": 1}, streaming=True)
    assert len(lines(listed.request(mine))) == 4
    other = msgspec.structs.replace(mine, userid=GUEST_USERID + 1, routes=("other",))
    assert [errnum for errnum, _ in listed.request(other)] == [Errno.EPERM]


def test_matchtag_of_an_open_watch_is_not_taken_twice(listed: ListedJobs) -> None:
    watch(listed, tag=9)
    ((errnum, _),) = watch(listed, tag=9)
    assert errnum == Errno.EPROTO


def _inactive_turn(listed: ListedJobs) -> list[Request]:
    """Job 1 comes to its end: what that turn asks of the kvs."""
    rest = [*running()[4:], *ending()]
    entries = [[1, 4 + n, msgspec.to_builtins(each)] for n, each in enumerate(rest)]
    requests = listed.core.turn(0.0, [listed.from_journal({"events": entries})])
    assert [request.topic for request in requests] == ["kvs.watch-cancel", "kvs.lookup"]
    return requests


def _error(request: Request, errnum: int, text: str) -> Any:
    return respond_error(request, errnum, text)


def test_number_of_keys_of_a_lookup_is_bounded(listed: ListedJobs) -> None:
    keys = [f"key{n}" for n in range(LOOKUP_KEYS_MAX + 1)]
    before = len(listed.lookups)
    text = f"job-info.lookup: {len(keys)} keys, at most {LOOKUP_KEYS_MAX} in one request"
    assert listed.ask(LOOKUP, {"id": 1, "keys": keys}) == [(Errno.EMSGSIZE, text)]
    assert len(listed.lookups) == before


def test_number_of_watches_of_a_user_is_bounded(listed: ListedJobs) -> None:
    def watched(tag: int, path: str = "eventlog") -> list[tuple[int, Any]]:
        return listed.request(
            asked_by_guest(WATCH, {"id": 1, "path": path}, streaming=True, tag=tag)
        )

    for tag in range(WATCHES_OF_USER_MAX):
        watched(tag, "guest.exec.eventlog")
        watch(listed, "guest.exec.eventlog", tag)
    text = f"has {WATCHES_OF_USER_MAX} eventlog watches open, the most that one user may have"
    ((errnum, refusal),) = watched(WATCHES_OF_USER_MAX)
    assert errnum == Errno.EAGAIN
    assert text in refusal
    assert lines(watch(listed, tag=WATCHES_OF_USER_MAX))  # the owner has more
    listed.request(gone("job-info", "guest"))
    assert lines(watched(0))


def test_cost_of_leaving_grows_with_the_number_of_ones_own_watches_alone() -> None:
    def leaving(mine: int, others: int) -> int:
        listed = ListedJobs()
        listed.store_log(1, pending())
        listed.start()
        for by, count in (("alice", mine), ("bob", others)):
            for tag in range(count):
                listed.ask(WATCH, {"id": 1}, streaming=True, tag=tag, by=by)
        request = gone("job-info", "alice")
        return count_steps(lambda: listed.core.turn(0.0, [request]))

    few, many, among_many = leaving(50, 0), leaving(200, 0), leaving(50, 400)
    assert many < 5 * few
    assert among_many < 1.5 * few


# --- output in several keys, credit

OUTPUT = "guest.output"
CREDIT = f"{WATCH}-credit"


def data_lines(first: int, count: int, size: int = 0) -> str:
    """`count` data events, numbered from `first`."""
    return "".join(
        format_event(event("data", n=n, data="x" * size)) for n in range(first, first + count)
    )


def numbers(responses: list[tuple[int, Any]]) -> list[int]:
    assert all(errnum == 0 for errnum, _ in responses)
    return [msgspec.json.decode(payload["event"])["context"]["n"] for _, payload in responses]


def grant(listed: ListedJobs, more: int, tag: int = 9) -> list[tuple[int, Any]]:
    """What is streamed after a grant."""
    request = asked(CREDIT, {"matchtag": tag, "credit": more}, tag=0)
    return listed.request(msgspec.structs.replace(request, flags=int(Flag.NORESPONSE)))


def store_pieces(listed: ListedJobs, *texts: str) -> None:
    for piece, text in enumerate(texts):
        listed.commit(["put", job_key(1, f"{OUTPUT}.{piece}" if piece else OUTPUT), text])


def test_output_of_several_keys_is_one_value_while_it_fits(listed: ListedJobs) -> None:
    texts = [data_lines(n, 1) for n in range(OUTPUT_PIECES_MAX)]
    store_pieces(listed, *texts)
    ((errnum, found),) = listed.ask(LOOKUP, {"id": 1, "keys": [OUTPUT]})
    assert (errnum, found[OUTPUT]) == (0, "".join(texts))
    store_pieces(listed, *texts, "one more\n")
    ((errnum, text),) = listed.ask(LOOKUP, {"id": 1, "keys": [OUTPUT]})
    assert errnum == Errno.EMSGSIZE
    assert text == f"{OUTPUT}: too long for one answer; follow it with {WATCH}"


@pytest.mark.parametrize("credit", [None, 1, 2, 1000])
def test_output_of_several_keys_is_one_eventlog(listed: ListedJobs, credit: int | None) -> None:
    store_pieces(listed, data_lines(0, 2), data_lines(2, 3), data_lines(5, 1))
    listed.tell_all(1, inactive()[4:], place=4)
    payload = {"id": 1, "path": OUTPUT, "credit": credit}
    told = listed.ask(WATCH, payload, streaming=True, tag=9)
    while told[-1][0] == 0:
        assert credit is not None
        told += grant(listed, credit)
    assert told.pop() == (Errno.ENODATA, None)
    assert numbers(told) == list(range(6))


def test_output_that_is_stored_while_it_is_watched_is_told_whole(listed: ListedJobs) -> None:
    watch(listed, OUTPUT)
    store_pieces(listed, data_lines(0, 2), data_lines(2, 1))
    assert numbers(listed.take_sent()) == [0, 1]
    listed.tell_all(1, inactive()[4:], place=4)
    *told, end = listed.take_sent()
    assert (numbers(told), end) == ([2], (Errno.ENODATA, None))


def test_watch_keeps_to_its_credit_and_loses_nothing(listed: ListedJobs) -> None:
    count, size = 12, HELD_CHARS_MAX // 5  # more than is held for a reader
    payload = {"id": 1, "path": OUTPUT, "credit": 2}
    told = listed.ask(WATCH, payload, streaming=True, tag=9)
    for n in range(count):
        listed.commit(["append", job_key(1, OUTPUT), data_lines(n, 1, size)])
        told += listed.take_sent()
    assert numbers(told) == [0, 1]
    listed.lookups.clear()
    told += grant(listed, 6)
    assert listed.lookups == [job_key(1, OUTPUT)]  # what is beyond was left there
    assert numbers(told) == list(range(8))
    listed.commit(["append", job_key(1, OUTPUT), data_lines(count, 1, size)])
    listed.tell_all(1, inactive()[4:], place=4)
    assert listed.take_sent() == []
    told += grant(listed, 1)
    told += grant(listed, 100)
    assert told.pop() == (Errno.ENODATA, None)
    assert numbers(told) == list(range(count + 1))


def test_answer_to_a_read_from_before_the_end_does_not_end_the_watch(listed: ListedJobs) -> None:
    listed.commit(["append", job_key(1, OUTPUT), data_lines(0, 20, HELD_CHARS_MAX // 5)])
    listed.ask(WATCH, {"id": 1, "path": OUTPUT, "credit": 1}, streaming=True, tag=9)
    granted = asked(CREDIT, {"matchtag": 9, "credit": 100}, tag=99)
    actions = listed.core.turn(0.0, [granted])
    (early,) = [each for each in actions if isinstance(each, Request)]
    answer = listed.kvs.take(early, "job-list")  # before the last line is stored
    listed.kvs.commit(["append", job_key(1, OUTPUT), data_lines(20, 1)])
    requests = _inactive_turn(listed)
    listed.turn(*answer)
    listed.take_sent()
    listed.do(requests)
    *told, end = listed.take_sent()
    assert end == (Errno.ENODATA, None)
    assert numbers(told)[-1] == 20


def test_watch_that_does_not_follow_ends_with_what_is_there(listed: ListedJobs) -> None:
    *told, end = listed.ask(WATCH, {"id": 1, "follow": False}, streaming=True)
    assert lines(told) == ["submit", "validate", "depend", "priority"]
    assert end == (Errno.ENODATA, None)
    ((errnum, text),) = listed.ask(
        WATCH, {"id": 1, "path": OUTPUT, "follow": False}, streaming=True
    )
    assert (errnum, text) == (Errno.ENOENT, f"{OUTPUT}: key not found")


def test_value_that_is_no_eventlog_is_read_once(listed: ListedJobs) -> None:
    """A long value without a line in it has nothing to tell, however much credit there is."""
    listed.commit(["put", job_key(1, "J"), "x" * (2 * HELD_CHARS_MAX)])
    listed.lookups.clear()
    wanted = {"id": 1, "path": "J", "credit": 5}
    assert listed.ask(WATCH, wanted, streaming=True, tag=8) == []
    told = listed.ask(WATCH, wanted | {"follow": False}, streaming=True, tag=9)
    assert told == [(Errno.ENODATA, None)]
    assert listed.lookups == [job_key(1, "J")]


def test_long_eventlog_is_read_a_bounded_number_of_times(listed: ListedJobs) -> None:
    """Each read takes all of the value: their number must not grow with its length."""
    count = 4 * READS_MAX
    listed.commit(["put", job_key(1, OUTPUT), data_lines(0, count, HELD_CHARS_MAX // 2)])
    payload = {"id": 1, "path": OUTPUT, "follow": False, "credit": 1}
    listed.lookups.clear()
    told = listed.ask(WATCH, payload, streaming=True, tag=9)
    while told[-1][0] != Errno.ENODATA:
        told += grant(listed, 1)
    assert numbers(told[:-1]) == list(range(count))
    assert len(listed.lookups) < 1.25 * READS_MAX  # whole lines are a little less than a part


def test_log_of_a_job_that_is_purged_meanwhile_is_refused_and_not_cut_off(
    listed: ListedJobs,
) -> None:
    listed.tell_all(2, inactive(userid=GUEST_USERID))
    listed.commit(["put", job_key(2, OUTPUT), data_lines(0, 2)])
    listed.commit(["put", job_key(2, f"{OUTPUT}.1"), data_lines(2, 2)])
    wanted = {"id": 2, "path": OUTPUT, "credit": 1}
    told = listed.ask(WATCH, wanted, streaming=True, tag=9)
    assert numbers(told) == [0]
    listed.commit(["unlink", format_fluid(2, "kvs")])
    *told, end = grant(listed, 9)
    assert numbers(told) == [1]
    assert end == (Errno.ENOENT, "the job was purged meanwhile")
