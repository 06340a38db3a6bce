"""Job logs: both formats, what they mean as jobspecs, and what is said about a broken line."""

from __future__ import annotations

from pathlib import Path

import pytest

from flux_trio.formats import FormatError, Jobspec
from flux_trio.sim import WorkloadJob, read_workload, to_jobspec
from flux_trio.sim.workload import SWF_EPOCH_DEFAULT

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


def test_an_swf_job_that_never_ran_has_what_it_asked_for_and_ends_at_once() -> None:
    fields = SWF.split()
    fields[3] = fields[4] = fields[8] = fields[11] = "-1"
    job = WorkloadJob("3", None, 32, 0, 0.0, SWF_EPOCH_DEFAULT + 60.0, 0.0, None)
    assert read_workload([" ".join(fields)]) == [job]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([HEADER, "7,2,80,1-02:03:04"], 'log, line 2: expected 7 values, got 4: 7,2,80,1-02:03:04'),
        ([HEADER, "", GOOD.replace("80", "x")],
         'log, line 3, column NCPUS: expected an integer of at least 0, got "x"'),
        ([HEADER, GOOD.replace("80", "-1")],
         'log, line 2, column NCPUS: expected an integer of at least 0, got "-1"'),
        ([HEADER, GOOD, GOOD.replace("80", "0")],
         "log, line 3, column NCPUS: expected an integer of at least 1, or 0 in every row, got 0"),
        ([HEADER, GOOD.replace("80", "0")],
         "log, line 2, column NCPUS: expected an integer of at least 1, because the cores of a "
         "node are not known, got 0"),
        ([HEADER, GOOD.replace("7,", ",", 1)],
         "log, line 2, column JobID: expected a value, got nothing"),
        ([HEADER, GOOD.replace("00:05:02,8", "00:05:02,-1")],
         'log, line 2, column NGPUS: expected an integer of at least 0, got "-1"'),
        ([HEADER, GOOD.replace("00:05:02", "5:61:02")],
         'log, line 2, column Elapsed: expected a duration [D-]HH:MM:SS, got "5:61:02"'),
        ([HEADER, GOOD.replace("2018-08-22", "1969-08-22")],
         "log, line 2, column Submit: expected a time after 1970-01-01T00:00:00, "
         'got "1969-08-22T10:38:53"'),
        ([HEADER + ",User,Account", GOOD + ",,x"],
         "log, line 2, column User: expected a value, got nothing"),
        ([HEADER + ",User,Account", GOOD + ",ann, "],
         "log, line 2, column Account: expected a value, got nothing"),
        ([HEADER, GOOD.replace(",2,", ",0,")],
         'log, line 2, column NNodes: expected an integer of at least 1, got "0"'),
        ([HEADER, GOOD.replace(",2,", f",{'9' * 20},")],
         "log, line 2, column NNodes: expected an integer of at least 1 and at most 15 digits, "
         f'got "{"9" * 20}"'),
        ([HEADER, GOOD.replace("1-02:03:04", "UNLIMITED")],
         'log, line 2, column Timelimit: expected a duration [D-]HH:MM:SS, got "UNLIMITED"'),
        ([HEADER, GOOD.replace("00:05:02", "")],
         "log, line 2, column Elapsed: expected a value, got nothing"),
        ([HEADER, GOOD.replace("2018-08-22T10:38:53", "Unknown")],
         'log, line 2, column Submit: expected a time YYYY-MM-DDTHH:MM:SS, got "Unknown"'),
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
        ([SWF.replace(" 16 ", " 0 ").replace(" 32 ", " -1 ")],
         "log, line 1, column Requested Number of Processors: expected an integer of at least 1, "
         'got "-1"'),
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
