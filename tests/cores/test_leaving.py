"""What a peer that leaves, or a guest who asks, costs: what is their own, whatever others have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from flux_trio.cores.exec.copying import POLLS_MAX
from flux_trio.cores.exec.vocabulary import OutputRead, ReadOutput
from flux_trio.cores.ingest.core import IngestCore
from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.ops import Stored
from flux_trio.cores.turns import SetTimer, TimerFired
from flux_trio.formats import Jobspec, parse_event
from flux_trio.messages import ROLE_USER, Errno, Response, disconnect_request, service_of, topics
from flux_trio.protocols import ACTIVE, VALIDATE, HookAnswer, HookAnswered, JobState
from tests.support.asking import GUEST_USERID, asked, asked_by_guest, gone, service_back
from tests.support.counting import count_steps
from tests.support.eventlogs import ending, inactive, pending, running
from tests.support.exec_script import MANAGER, ExecScript, jobspec, start_request, timers, told
from tests.support.listing import ListedJobs
from tests.support.manager_script import ManagerScript

FEW, MANY = 10, 200


def assert_same_cost(measure: Callable[[int], int]) -> None:
    """The number of others changes little."""
    assert measure(MANY) < 2 * measure(FEW)


def test_poll_reads_on_for_some_copies_in_turn() -> None:
    script = ExecScript()
    jobs = range(1, POLLS_MAX + 11)
    reads = []
    for jobid in jobs:
        script.started(jobid, jobspec())
        reads += script(asked("job-exec.copy", {"id": jobid}, tag=jobid))
    nothing = [OutputRead(read.number, read.id, ()) for read in reads]
    actions = [action for each in nothing for action in script(each)]
    assert len(timers(actions)) == 1
    actions = script.fire(actions)
    first = [action.id for action in actions if isinstance(action, ReadOutput)]
    assert first == list(jobs[:POLLS_MAX])
    second = [action.id for action in script.fire(actions) if isinstance(action, ReadOutput)]
    assert second == list(jobs[POLLS_MAX:])


def test_guest_who_leaves_costs_the_kvs_nothing() -> None:
    def leaving(number: int) -> int:
        core = KvsCore()
        core.turn(0.0, [asked("kvs.lookup", {"key": "a"}, tag=n) for n in range(1, number + 1)])
        core.turn(0.0, [asked("kvs.lookup", {"key": "a"}, tag=n + 1000) for n in range(number)])
        farewell = disconnect_request("kvs", "guest", GUEST_USERID, ROLE_USER)
        return count_steps(lambda: core.turn(0.0, [farewell]))

    assert_same_cost(leaving)


def test_peers_that_leave_together_are_looked_for_once_among_what_waits_for_commits() -> None:
    def leaving(number: int) -> int:
        m = ManagerScript(commits_wait=True)
        m.submit(1)
        for tag in range(1, MANY):
            m.ask(topics.JOB_URGENCY, {"id": 1, "urgency": tag % 16}, tag=tag)
        goes = [gone("job-manager", f"peer{n}") for n in range(number)]
        return count_steps(lambda: m.put(*goes))

    assert leaving(20) - leaving(10) < leaving(10) / 2


def test_answers_to_a_peer_that_has_left_wait_for_no_commit() -> None:
    """6.disconnect.2: and those to the next one of its name go out."""
    m = ManagerScript(commits_wait=True)
    m.submit(1)
    ask = asked(topics.JOB_URGENCY, {"id": 1, "urgency": 3}, tag=5)
    again = asked(topics.JOB_URGENCY, {"id": 1, "urgency": 4}, tag=6)
    m.put(ask)
    m.put(gone("job-manager", "alice"), again)
    while m.commits:
        m.commit()
    answers = [each for each in m.messages if each.topic == topics.JOB_URGENCY]
    assert [each.matchtag for each in answers] == [6]


def test_jobs_of_an_ingest_that_is_gone_are_decided_and_it_is_not_answered() -> None:
    """6.disconnect.2: the next ingest has the same name, and uses the same matchtags."""
    m = ManagerScript(hooks=[VALIDATE])
    m.submit(1)
    validate = m.asked.pop(VALIDATE)
    m.put(gone("job-manager", "job-ingest"), m.submission(2))
    assert m.put(HookAnswered(validate.ticket, HookAnswer())) == []
    assert m.names(1)[:2] == ["submit", "validate"]
    assert m.answer(VALIDATE) == ["job-manager.submit -> {'errors': []}"]


@pytest.mark.parametrize("at", ["key", "validate", "scheduler"])
@pytest.mark.parametrize("is_refused", [False, True], ids=["done", "refused"])
def test_update_of_a_client_that_is_gone_is_done_and_it_is_not_answered(
    at: str, *, is_refused: bool
) -> None:
    """6.disconnect.2: wherever the update waits."""
    duration = "attributes.system.duration"
    hook = {"key": f"job.update.{duration}", "validate": VALIDATE}.get(at)
    key_answer = HookAnswer(handled=True, validated=at != "validate")
    answers = {} if at == "key" else {f"job.update.{duration}": key_answer}
    m = ManagerScript(answers=answers, peers=True)
    m.running(1)
    m.plugins.waiting.update([hook] if hook else [])
    m.ask(topics.JOB_UPDATE, {"id": 1, "updates": {duration: 1e6}})
    assert m.gone("alice") == []
    told = m.answer(hook, reject="no" if is_refused else None, handled=True) if hook else []
    if hook is None or not is_refused:
        errnum = Errno.EINVAL if is_refused else 0
        tag = m.last(topics.SCHED_EXPIRATION).matchtag
        told += m.put(Response(topics.SCHED_EXPIRATION, errnum=errnum, matchtag=tag))
    assert [line for line in told if "->" in line] == []
    assert ("jobspec-update" in m.names(1)) is not is_refused


def test_exceptions_on_all_jobs_of_a_guest_look_at_no_others() -> None:
    payload = {"severity": 0, "type": "cancel", "states": int(ACTIVE), "userid": GUEST_USERID}

    def asking(number: int) -> int:
        m = ManagerScript()
        m.submit(*range(1, number + 1), userid=GUEST_USERID + 1)
        ask = asked_by_guest(topics.JOB_RAISEALL, payload)
        m.put(ask)
        return count_steps(lambda: m.core.turn(m.now, [ask]))

    assert_same_cost(asking)


def with_a_finished_and_a_running_job() -> ListedJobs:
    """Jobs 1 and 2; from here on the kvs waits."""
    listed = ListedJobs()
    for jobid, log in ((1, inactive()), (2, running())):
        listed.store_jobspec(jobid)
        listed.store_log(jobid, log)
    listed.start()
    listed.waits = True
    return listed


@pytest.mark.parametrize("tag", [1, 2])
@pytest.mark.parametrize("is_gone", [False, True], ids=["canceled", "gone"])
def test_list_that_is_left_while_it_reads_holds_up_no_later_list(
    tag: int, *, is_gone: bool
) -> None:
    listed = with_a_finished_and_a_running_job()
    listed.ask(topics.LIST_LIST, {"states": int(JobState.INACTIVE)}, tag=1)
    assert len(listed.answers) == 1  # it reads
    if is_gone:
        listed.turn(gone("job-list", "alice"))
    else:
        listed.turn(asked(topics.LIST_CANCEL, {"matchtag": 1}, tag=9))
    listed.take_sent()
    listed.turn(asked(topics.LIST_LIST, {"states": int(JobState.RUN)}, tag=tag))
    listed.waits = False
    listed.let_kvs_answer()
    ((errnum, payload),) = listed.take_sent()
    assert (errnum, [job["id"] for job in payload["jobs"]]) == (0, [2])


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        (topics.LIST_ID, {"id": 1}),
        (topics.LIST_ID, {"id": 2}),
        (topics.LIST_ID, {"id": 77}),
        (topics.INFO_LOOKUP, {"id": 1, "keys": ["jobspec", "eventlog"]}),
        (topics.INFO_LOOKUP, {"id": 2, "keys": ["jobspec", "none"]}),
    ],
)
def test_read_for_a_client_that_is_gone_is_not_answered(
    topic: str, payload: dict[str, Any]
) -> None:
    """6.disconnect.2: wherever it is, also the next time that its sender asks."""
    for nturns in (0, 1):
        listed = with_a_finished_and_a_running_job()
        listed.turn(asked(topic, payload))
        assert listed.answers
        for _ in range(nturns):
            listed.let_kvs_answer()
        listed.take_sent()
        listed.turn(gone(service_of(topic), "alice"))
        listed.waits = False
        listed.let_kvs_answer()
        assert listed.take_sent() == []
        assert len(listed.request(asked(topic, payload))) == 1


def test_stream_gets_nothing_that_was_read_for_an_earlier_one_with_its_matchtag() -> None:
    """The earlier one has read an eventlog that has grown since."""
    listed = with_a_finished_and_a_running_job()
    listed.turn(asked(topics.INFO_WATCH, {"id": 2, "follow": False}, streaming=True))
    assert len(listed.answers) == 1  # the eventlog of a running job
    listed.turn(asked(topics.INFO_WATCH_CANCEL, {"matchtag": 1}, tag=9))
    finish = ending()[0]
    listed.store_log(2, [finish])
    listed.take_sent()
    listed.turn(asked(topics.INFO_WATCH, {"id": 2, "follow": False}, streaming=True))
    listed.waits = False
    listed.let_kvs_answer()
    *lines, (errnum, _) = listed.take_sent()
    assert errnum == Errno.ENODATA
    assert parse_event(lines[-1][1]["event"]) == finish


def test_client_that_goes_before_its_stream_is_open_leaves_no_stream() -> None:
    listed = with_a_finished_and_a_running_job()
    wanted = {"id": 1, "path": "eventlog", "credit": 1}
    listed.turn(asked(topics.INFO_WATCH, wanted, streaming=True))
    listed.turn(gone("job-info", "alice"))
    listed.waits = False
    listed.let_kvs_answer()
    assert listed.take_sent() == []
    ((_, stats),) = listed.ask("job-list.stats-get")
    assert stats["watches"] == 0


def test_job_that_ends_costs_no_more_when_many_lists_wait() -> None:
    wanted = {"states": int(JobState.INACTIVE), "max_entries": 0}

    def ending_one(number: int) -> int:
        listed = ListedJobs()
        listed.start()
        for jobid in range(1, 100):
            listed.tell_all(jobid, pending())
        listed.tell_all(100, running())
        lists = [asked(topics.LIST_LIST, wanted, tag=tag) for tag in range(1, number + 1)]
        listed.core.turn(0.0, lists)
        told = [(100, 6 + place, event) for place, event in enumerate(ending())]
        listed.store_log(100, ending())
        entries = [[jobid, place, msgspec.to_builtins(event)] for jobid, place, event in told]
        news = listed.from_journal({"events": entries})
        return count_steps(lambda: listed.core.turn(0.0, [news]))

    assert ending_one(10 * MANY) < 2 * ending_one(FEW)


# --- one that leaves in the turn of its answer (6.disconnect.2)


def responses(actions: list[Any]) -> list[Response]:
    return [each for each in actions if isinstance(each, Response)]


def test_kvs_does_not_answer_one_that_leaves_in_the_turn_of_its_answer() -> None:
    """6.disconnect.2: whether its commit is stored in that turn, or its request is refused."""
    core = KvsCore()
    put = asked("kvs.commit", {"ops": [["put", "a", "1"]]})
    core.turn(0.0, [put])
    assert responses(core.turn(0.0, [Stored(), gone("kvs", "alice"), put])) == []
    again = responses(core.turn(0.0, [Stored()]))
    assert [each.routes for each in again] == [("alice",)]  # the next one of its name
    guests = asked_by_guest("kvs.lookup", {"key": "a"})
    farewell = disconnect_request("kvs", "guest", GUEST_USERID, ROLE_USER)
    assert len(responses(core.turn(0.0, [guests]))) == 1
    assert responses(core.turn(0.0, [guests, farewell])) == []


def test_execution_service_does_not_answer_one_that_leaves_in_the_turn_of_its_answer() -> None:
    """6.disconnect.2"""
    script = ExecScript()
    script.started(7, jobspec())
    kill = asked("job-exec.kill", {"id": 7, "signum": 15})
    assert len(responses(script(kill))) == 1
    assert responses(script(kill, gone("job-exec", "alice"))) == []
    again = script(kill, gone("job-exec", "alice"), msgspec.structs.replace(kill, matchtag=2))
    assert [each.matchtag for each in responses(again)] == [2]


def test_job_that_ends_in_the_turn_in_which_the_job_manager_leaves_is_not_told_to_it() -> None:
    """6.disconnect.2: the next one is told of it."""
    script = ExecScript(simulate=True, has_shell=False)
    (timer,) = [e for e in script.start(7, jobspec(duration=10.0)) if isinstance(e, SetTimer)]
    over = TimerFired(timer.key)
    (hello,) = script(over, gone("job-exec", MANAGER), now=timer.at)
    assert hello.topic == topics.EXEC_HELLO
    script(Response(hello.topic, None, 0, hello.matchtag), now=timer.at)
    again = script(start_request(7, jobspec(duration=10.0), reattach=True), now=timer.at)
    assert [each[0] for each in told(again)] == ["start", "finish", "release"]


def test_job_whose_end_is_told_again_in_the_turn_in_which_the_job_manager_leaves_is_kept() -> None:
    """6.disconnect.2: the first job manager has left too, and the third is told of the end."""
    script = ExecScript(simulate=True, has_shell=False)
    (timer,) = [e for e in script.start(7, jobspec(duration=10.0)) if isinstance(e, SetTimer)]
    leaves = gone("job-exec", MANAGER)
    again = start_request(7, jobspec(duration=10.0), reattach=True)
    (hello,) = script(TimerFired(timer.key), leaves, now=timer.at)
    script(Response(hello.topic, None, 0, hello.matchtag), now=timer.at)
    (hello,) = script(again, leaves, now=timer.at)
    assert list(script.core.jobs.by_id) == [7]
    script(Response(hello.topic, None, 0, hello.matchtag), now=timer.at)
    assert [each[0] for each in told(script(again, now=timer.at))] == ["start", "finish", "release"]
    assert not script.core.jobs.by_id


@pytest.mark.parametrize(
    ("topic", "payload", "is_streaming"),
    [
        (topics.LIST_LIST, {"states": int(ACTIVE)}, False),
        (topics.LIST_STATS, {}, False),
        (topics.LIST_ID, {"id": 2}, False),
        (topics.INFO_LOOKUP, {"id": 2, "keys": ["none"]}, False),
        (topics.INFO_WATCH, {"id": 2, "path": "none"}, True),
    ],
)
def test_list_does_not_answer_one_that_leaves_in_the_turn_of_its_answer(
    topic: str, payload: dict[str, Any], *, is_streaming: bool
) -> None:
    """6.disconnect.2: also if what it asked for is read in that turn."""
    listed = with_a_finished_and_a_running_job()
    ask = asked(topic, payload, streaming=is_streaming)
    farewell = gone(service_of(topic), "alice")
    listed.turn(ask, farewell)
    assert listed.take_sent() == []
    listed.let_kvs_answer()
    assert listed.take_sent() == []
    listed.turn(ask)
    if not listed.take_sent():
        answers, listed.answers = listed.answers, []
        listed.turn(*answers, farewell)
        assert listed.take_sent() == []


def test_ingest_does_not_answer_one_that_leaves_in_the_turn_of_its_answer() -> None:
    """6.disconnect.2: refused at once, or when the batch is decided."""
    core = IngestCore()
    (getinfo,) = core.start(1.0)
    submit = asked(topics.INGEST_SUBMIT, {"jobspec": Jobspec.from_command(["true"]).to_json()})
    bad = asked(topics.INGEST_SUBMIT, {"jobspec": {}})
    farewell = gone(topics.JOB_INGEST, "alice")
    core.turn(1.0, [submit])
    error = Response(getinfo.topic, "job-manager is gone", Errno.ENOSYS, getinfo.matchtag)
    assert responses(core.turn(1.0, [error, farewell])) == []
    assert len(responses(core.turn(1.0, [submit]))) == 1
    assert responses(core.turn(1.0, [submit, farewell])) == []
    (getinfo,) = core.turn(1.0, [service_back("job-manager")])
    core.turn(1.0, [Response(getinfo.topic, {"max_jobid": 0}, 0, getinfo.matchtag)])
    assert len(responses(core.turn(1.0, [bad]))) == 1
    assert responses(core.turn(1.0, [bad, farewell])) == []
    (commit,) = core.turn(1.0, [submit])
    (told,) = core.turn(1.0, [Response(commit.topic, {}, 0, commit.matchtag)])
    decided = Response(told.topic, {"errors": []}, 0, told.matchtag)
    assert responses(core.turn(1.0, [farewell, decided])) == []


def test_job_manager_does_not_answer_one_that_leaves_in_the_turn_of_the_commit() -> None:
    """6.disconnect.2: and the next one of its name is answered."""
    m = ManagerScript(commits_wait=True)
    m.submit(1)
    while m.commits:
        m.commit()
    m.ask(topics.JOB_URGENCY, {"id": 1, "urgency": 3}, tag=5)
    stored = m.commits.popleft()
    again = asked(topics.JOB_URGENCY, {"id": 1, "urgency": 4}, tag=6)
    m.put(Response(stored.topic, {}, 0, stored.matchtag), gone("job-manager", "alice"), again)
    while m.commits:
        m.commit()
    answers = [each for each in m.messages if each.topic == topics.JOB_URGENCY]
    assert [each.matchtag for each in answers] == [6]
