"""Job logs: both formats, what they mean as jobspecs, and what is said about a broken line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from flux_trio.formats import FormatError, Jobspec
from flux_trio.sim import WorkloadJob, decode_log, read_workload, to_jobspec
from flux_trio.sim.swf import SWF_EPOCH_DEFAULT

LASSEN = Path(__file__).parents[1] / "data" / "workloads" / "lassen-100.csv"
HEADER = "JobID,NNodes,NCPUS,Timelimit,Submit,Elapsed,NGPUS"
GOOD = "7,2,80,1-02:03:04,2018-08-22T10:38:53,00:05:02,8"
SWF = "3 60 5 120 16 -1 -1 32 600 -1 1 42 7 -1 1 -1 -1 -1"


def test_a_csv_line_is_a_job_with_its_times_in_seconds() -> None:
    assert read_workload([HEADER, GOOD]) == [
        WorkloadJob("7", 2, 80, 8, 93784.0, 1534934333.0, 302.0, None)
    ]


def test_columns_come_in_any_order_and_gpus_may_be_missing_and_users_there() -> None:
    header = "User,Submit,Elapsed,Partition,JobID,Timelimit,NCPUS,NNodes"
    line = "ann,1970-01-01T00:01:00,00:00:30,pbatch,a,00:10:00,4,1"
    job = WorkloadJob("a", 1, 4, 0, 600.0, 60.0, 30.0, "ann")
    assert read_workload([header, "", line, ""]) == [job]


def test_a_time_with_a_zone_is_taken_at_its_word() -> None:
    line = GOOD.replace("10:38:53", "10:38:53+02:00")
    assert read_workload([HEADER, line])[0].submit_s == 1534934333.0 - 7200


def test_an_swf_line_counts_from_the_start_time_of_its_comments() -> None:
    job = WorkloadJob("3", None, 16, 0, 600.0, 1000060.0, 120.0, "42")
    assert read_workload(["; Version: 2.2", "; UnixStartTime: 1000000", SWF]) == [job]
    assert read_workload([SWF])[0].submit_s == SWF_EPOCH_DEFAULT + 60.0


def swf(**fields: object) -> str:
    """SWF with other fields, by name: `run`, `allocated`, `requested`, `time`, `status`, ..."""
    places = {"number": 0, "submit": 1, "run": 3, "allocated": 4, "requested": 7, "time": 8}
    places |= {"status": 10, "user": 11}
    values = SWF.split()
    for name, value in fields.items():
        values[places[name]] = str(value)
    return " ".join(values)


def read(*lines: str) -> tuple[list[WorkloadJob], list[str]]:
    """Return the jobs, and what is said about the log."""
    said: list[str] = []
    return read_workload(lines, "log", warn=said.append), said


def test_an_swf_job_of_unknown_run_time_runs_for_its_requested_time_which_is_said() -> None:
    jobs, said = read("; a comment", swf(run=-1), SWF, swf(number=4, run=-1, time=60))
    assert [job.elapsed_s for job in jobs] == [600.0, 120.0, 60.0]
    assert said == [
        "log: unknown run time, so the requested time is taken: 2 of 3 rows, the first in line 2"
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (swf(run=-1, status=5), "they were canceled and have no run time"),
        (swf(run=-1, time=-1), "run time and requested time are unknown"),
        (swf(run=-1, time=0), "run time and requested time are unknown"),
        (swf(allocated=-1, requested=-1), "the number of processors is unknown"),
        (swf(allocated=0, requested=0), "the number of processors is unknown"),
        (swf(submit=-1), "the submit time is unknown"),
    ],
)
def test_an_swf_job_that_cannot_run_is_left_out_and_counted(line: str, reason: str) -> None:
    jobs, said = read(SWF, line, swf(number=9), line)
    assert [job.name for job in jobs] == ["3", "9"]
    assert said == [f"log: left out, since {reason}: 2 of 4 rows, the first in line 2"]


def test_an_swf_job_without_allocated_processors_has_those_it_asked_for() -> None:
    (job,), said = read(swf(allocated=-1, run=0, time=-1, user=-1, status=5))
    assert job == WorkloadJob("3", None, 32, 0, 0.0, SWF_EPOCH_DEFAULT + 60.0, 0.0, None)
    assert said == []


def test_times_of_swf_may_have_fractions() -> None:
    (job,), said = read(swf(submit="0.5", run="10.25", time="-1.0"))
    assert (job.submit_s, job.elapsed_s) == (SWF_EPOCH_DEFAULT + 0.5, 10.25)
    assert (job.timelimit_s, said) == (0.0, [])


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ("1-02:03:04", "UNLIMITED", (0.0, 302.0)),
        ("1-02:03:04", "02:03", (123.0, 302.0)),
        ("00:05:02", "05:02.125", (93784.0, 302.125)),
        ("00:05:02", "2-00:00:01.5", (93784.0, 172801.5)),
    ],
)
def test_times_are_read_as_sacct_writes_them(
    old: str, new: str, values: tuple[float, float]
) -> None:
    (job,), said = read(HEADER, GOOD.replace(old, new))
    assert (job.timelimit_s, job.elapsed_s) == values
    assert said == []


@pytest.mark.parametrize("text", ["Partition_Limit", "INVALID", ""])
def test_a_time_limit_that_sacct_does_not_know_is_no_limit_which_is_said(text: str) -> None:
    (job,), said = read(HEADER, GOOD.replace("1-02:03:04", text))
    assert job.timelimit_s == 0.0
    assert said == [
        "log: Timelimit is not a time, so there is no limit: 1 of 1 rows, the first in line 2"
    ]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("7,", "7.batch,", "they are steps of jobs"),
        ("7,", "7_3.extern,", "they are steps of jobs"),
        ("7,", "7.0,", "they are steps of jobs"),
        (",2,", ",0,", "NNodes is 0"),
        (",80,", ",0,", "NCPUS is 0"),
        ("2018-08-22T10:38:53", "Unknown", "Submit is unknown"),
        ("2018-08-22T10:38:53", "", "Submit is unknown"),
        ("00:05:02", "INVALID", "Elapsed is unknown"),
        ("00:05:02", "", "Elapsed is unknown"),
    ],
)
def test_a_row_of_sacct_that_is_no_job_is_left_out_and_counted(
    old: str, new: str, reason: str
) -> None:
    jobs, said = read(HEADER, GOOD, GOOD.replace(old, new, 1))
    assert [job.name for job in jobs] == ["7"]
    assert said == [f"log: left out, since {reason}: 1 of 2 rows, the first in line 3"]


STATED = f"{HEADER},State"


@pytest.mark.parametrize(
    ("state", "elapsed", "reason"),
    [
        ("PENDING", "00:00:00", "State says that they have not run"),
        ("CANCELLED by 1000", "00:00:00", "State says that they have not run"),
        ("REQUEUED", "00:00:00", "State says that they have not run"),
        ("RUNNING", "00:00:07", "State says that they were not over"),
        ("SUSPENDED", "00:00:07", "State says that they were not over"),
        ("COMPLETING", "00:00:07", "State says that they were not over"),
    ],
)
def test_a_row_of_sacct_that_has_not_run_to_its_end_is_left_out_and_counted(
    state: str, elapsed: str, reason: str
) -> None:
    other = GOOD.replace("00:05:02", elapsed).replace("7,", "8,", 1)
    jobs, said = read(STATED, f"{GOOD},COMPLETED", f"{other},{state}")
    assert [job.name for job in jobs] == ["7"]
    assert said == [f"log: left out, since {reason}: 1 of 2 rows, the first in line 3"]


@pytest.mark.parametrize(
    "state", ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED+", "NODE_FAIL", "OUT_OF_ME+", ""]
)
def test_a_row_of_sacct_that_is_over_is_a_job(state: str) -> None:
    (job,), said = read(STATED, f"{GOOD},{state}")
    assert (job.elapsed_s, said) == (302.0, [])


def test_numbers_of_swf_may_have_a_fraction_of_0() -> None:
    (job,), said = read(swf(number="3.0", allocated="4.0", status="1.", user="42.00"))
    assert (job.name, job.ncores, job.user, said) == ("3", 4, "42", [])


def test_numbers_of_sacct_may_be_multiples_of_1024() -> None:
    (job,), _ = read(HEADER, GOOD.replace(",2,80,", ",1K,64K,"))
    assert (job.nnodes, job.ncores) == (1024, 65536)


@pytest.mark.parametrize("end", ["", "|"])
def test_values_may_be_separated_as_sacct_p_does(end: str) -> None:
    """-p ends each line with a separator; a value may have commas and quotes."""
    header = f"{HEADER.replace(',', '|')}|JobName{end}"
    (job,), _ = read(header, f'{GOOD.replace(",", "|")}|a,"b{end}')
    assert job == WorkloadJob("7", 2, 80, 8, 93784.0, 1534934333.0, 302.0, None)


def test_a_user_or_account_that_is_not_there_is_unknown() -> None:
    (job,), said = read(HEADER + ",User,Account", GOOD + ",, ")
    assert (job.user, job.bank, said) == (None, None, [])


TEXT = "; Universit\u00e9\n" + SWF + "\n"


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        TEXT.encode("utf-8-sig"),
        TEXT.replace("\n", "\r\n").encode(),
        gzip.compress(TEXT.encode("utf-8-sig"), mtime=0),  # the same in each process
        gzip.compress(TEXT.encode()[:10], mtime=0) + gzip.compress(TEXT.encode()[10:], mtime=0),
    ],
)
def test_a_log_is_read_as_it_is_distributed(data: bytes) -> None:
    said: list[str] = []
    lines = decode_log(data, "log", said.append)
    assert lines == TEXT.splitlines(keepends=True)
    assert [job.name for job in read_workload(lines)] == ["3"]
    assert said == []


def test_a_log_in_latin_1_is_read_and_it_is_said() -> None:
    said: list[str] = []
    assert decode_log(TEXT.encode("latin-1"), "log", said.append)[0] == "; Universit\u00e9\n"
    assert said == ["log: the log is not in UTF-8: it is read as Latin-1"]


@pytest.mark.parametrize("cut", [slice(20), slice(5), slice(-4)])
def test_a_damaged_compressed_log_is_named(cut: slice) -> None:
    with pytest.raises(FormatError, match=r"^log: expected data that gzip has compressed, got "):
        decode_log(gzip.compress(TEXT.encode())[cut], "log")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([HEADER, "7,2,80,1-02:03:04"], 'log, line 2: expected 7 values, got 4: 7,2,80,1-02:03:04'),
        ([HEADER, "", GOOD.replace("80", "x")],
         'log, line 3, column NCPUS: expected an integer of at least 0, got "x"'),
        ([HEADER, GOOD.replace("80", "-1")],
         'log, line 2, column NCPUS: expected an integer of at least 0, got "-1"'),
        ([HEADER, GOOD.replace("80", "0")],
         "log, line 2, column NCPUS: expected an integer of at least 1, because the cores of a "
         "node are not known, got 0"),
        ([HEADER, GOOD.replace("7,", ",", 1)],
         "log, line 2, column JobID: expected a value, got nothing"),
        ([HEADER, GOOD.replace("00:05:02,8", "00:05:02,-1")],
         'log, line 2, column NGPUS: expected an integer of at least 0, got "-1"'),
        ([HEADER, GOOD.replace("00:05:02", "5:61:02")],
         'log, line 2, column Elapsed: expected a duration [D-][HH:]MM:SS, got "5:61:02"'),
        ([HEADER, GOOD.replace("2018-08-22", "1969-08-22")],
         "log, line 2, column Submit: expected a time after 1970-01-01T00:00:00, "
         'got "1969-08-22T10:38:53"'),
        ([HEADER, GOOD.replace(",2,", f",{'9' * 20},")],
         "log, line 2, column NNodes: expected an integer of at least 0 and at most 15 digits, "
         f'got "{"9" * 20}"'),
        ([HEADER, GOOD.replace("2018-08-22T10:38:53", "today")],
         'log, line 2, column Submit: expected a time YYYY-MM-DDTHH:MM:SS, got "today"'),
        ([HEADER, '7,"2'],
         "log, line 2: expected comma-separated values, got unexpected end of data"),
        (["JobID,NNodes,NCPUS,Submit"],
         "log, line 1: expected a header with Timelimit, Elapsed (or 18 numbers, SWF), "
         'got "JobID,NNodes,NCPUS,Submit"'),
        ([], "log, line 1: expected a header JobID,NNodes,NCPUS,Timelimit,Submit,Elapsed, or SWF, "
         "got nothing"),
        (["; a comment", SWF + " 0"], f"log, line 2: expected 18 numbers, got 19: {SWF} 0"),
        ([SWF, SWF.replace(" 120 ", " -2 ")],
         "log, line 2, column Run Time: expected a number of seconds, or -1 for unknown, "
         'got "-2"'),
        ([HEADER, GOOD.replace("2018", "2060"), GOOD, GOOD.replace("2018", "1999")],
         "log, line 2, column Submit: expected a time at most 12725 days after the first "
         "submission, because a job id has 40 bits of milliseconds, got 22281.0 days"),
        ([SWF, "; a comment", SWF.replace(" 60 ", " 1100000000 ")],
         "log, line 3, column Submit Time: expected a time at most 12725 days after the first "
         "submission, because a job id has 40 bits of milliseconds, got 12731.5 days"),
    ],
)  # fmt: skip
def test_a_broken_line_is_named_with_what_was_expected_and_what_came(
    lines: list[str], says: str
) -> None:
    with pytest.raises(FormatError) as caught:
        read_workload(lines, "log")
    assert str(caught.value) == says


def test_a_log_that_counts_no_cores_takes_those_of_its_nodes() -> None:
    row = "1001,4,0,02:00:00,2019-03-01T10:00:00,01:12:44,16"
    other = "1002,1,0,02:00:00,2019-03-01T10:00:00,01:12:44,4"
    jobs = read_workload([HEADER, row, other], cores_per_node=40)
    assert [(job.nnodes, job.ncores, job.ngpus) for job in jobs] == [(4, 160, 16), (1, 40, 4)]


def test_a_job_of_n_nodes_asks_for_a_slot_on_each_with_its_share() -> None:
    job = WorkloadJob("7", 2, 81, 8, 600.0, 0.0, 30.5)
    jobspec = Jobspec.parse(to_jobspec(job))
    assert (jobspec.nnodes, jobspec.nslots) == (2, 2)
    assert (jobspec.ncores, jobspec.ngpus) == (82, 8)  # 41 cores on each: never less than asked
    assert jobspec.duration == 600.0
    assert jobspec.attribute("system.exec.test.run_duration") == 30.5
    assert jobspec.attribute("system.job.name") == "7"


def test_a_job_that_counts_cores_alone_may_have_them_anywhere() -> None:
    jobspec = Jobspec.parse(to_jobspec(WorkloadJob("3", None, 16, 0, 0.0, 0.0, 120.0)))
    assert (jobspec.nnodes, jobspec.nslots, jobspec.ncores) == (None, 16, 16)
    assert jobspec.duration == 0.0


def test_the_log_of_lassen_has_whole_nodes_of_40_cores() -> None:
    jobs = read_workload(LASSEN.read_text().splitlines())
    assert len(jobs) == 100
    assert all(job.nnodes is not None and job.ncores == 40 * job.nnodes for job in jobs)
    assert sum(job.elapsed_s > job.timelimit_s for job in jobs) == 3
