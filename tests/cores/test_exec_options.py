"""Shell options that say where tasks go, what they may use, and what is filled in for them."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.exec.placement import LayoutError, place_tasks
from flux_trio.cores.exec.tasks import check_terminal, remarks_of, start_request
from flux_trio.formats import FormatError, Jobspec, ResourceSet, format_fluid
from flux_trio.shell.protocol import Start
from tests.support.exec_script import resources


def jobspec(*command: str, options: dict[str, Any], **more: Any) -> Jobspec:
    attributes = {f"system.shell.options.{name}": value for name, value in options.items()}
    return Jobspec.from_command(command or ("true",), attributes=attributes, **more)


def start(made: Jobspec, r: ResourceSet) -> Start:
    return start_request(58, made, r, place_tasks(made, r), {})


def gpu_node(gpus: int, cores: int = 4) -> ResourceSet:
    entry = (0, (1 << cores) - 1, (1 << gpus) - 1)
    return ResourceSet.build([entry], lambda rank: f"node{rank}", starttime=0.0, expiration=0.0)


# Where


@pytest.mark.parametrize(
    ("taskmap", "ranks"),
    [
        ({"scheme": "block"}, [3, 3, 3, 5, 5]),
        ({"scheme": "cyclic"}, [3, 5, 3, 5, 3]),
        ({"scheme": "cyclic", "value": ""}, [3, 5, 3, 5, 3]),
        ({"scheme": "cyclic", "value": "2"}, [3, 3, 5, 5, 3]),
        ({"scheme": "manual", "value": "[[1,1,1,1],[0,2,2,1]]"}, [5, 3, 3, 5, 5]),
        ({"scheme": "manual", "value": "0-1;2-4"}, [3, 3, 5, 5, 5]),
    ],
)
def test_tasks_go_to_nodes_in_the_order_that_was_asked_for(
    taskmap: object, ranks: list[int]
) -> None:
    """20.overview.6, 20.overview.7: on the targets of R, whatever the order."""
    placed = place_tasks(jobspec(options={"taskmap": taskmap}, ntasks=5), resources({3: 3, 5: 2}))
    assert [place.rank for place in placed] == ranks
    for rank in (3, 5):
        local_ids = [place.local_id for place in placed if place.rank == rank]
        assert local_ids == list(range(len(local_ids)))


@pytest.mark.parametrize(
    ("taskmap", "text"),
    [
        ("cyclic", "Expected `object`"),
        ({"scheme": "hostfile", "value": "f"}, "block, cyclic or manual, got 'hostfile'"),
        ({"scheme": "cyclic", "value": "0"}, "invalid cyclic stride: 0"),
        ({"scheme": "cyclic", "value": "x"}, "invalid cyclic stride: x"),
        ({"scheme": "cyclic", "value": "1" * 5000}, "invalid cyclic stride: 1111"),
        ({"scheme": "manual", "value": "0-4;5-999999"}, "at most 5 tasks and nodes, got 1000000"),
        ({"scheme": "manual", "value": "[[0,1,6,1]]"}, "at most 5 tasks and nodes, got 6"),
        ({"scheme": "manual", "value": ";" * 9}, "at most 5 tasks and nodes, got 10"),
        ({"scheme": "manual", "value": f"(vector,(0,1,{'1' * 5000}))"}, "expected a task map"),
        ({"scheme": "manual"}, "expected a task map"),
        ({"scheme": "manual", "value": "[[0,1,5,1]]"}, "5 tasks on 2 nodes, got 5 on 1"),
        ({"scheme": "manual", "value": "[[0,2,2,1]]"}, "5 tasks on 2 nodes, got 4 on 2"),
        ({"scheme": "manual", "value": "[[0,3,1,1],[0,2,1,1]]"}, "got 5 on 3"),
    ],
)
def test_task_map_that_cannot_be_is_refused(taskmap: object, text: str) -> None:
    made = jobspec(options={"taskmap": taskmap}, ntasks=5)
    with pytest.raises(LayoutError, match=rf"shell.options.taskmap: .*{text}"):
        place_tasks(made, resources({3: 3, 5: 2}))


# What they may use


@pytest.mark.parametrize(
    ("option", "ntasks", "cores"),
    [
        ("on", 2, [[0, 1, 2, 3], [0, 1, 2, 3]]),
        ("off", 2, [[], []]),
        ("per-task", 2, [[0, 1], [2, 3]]),
        ("per-task", 3, [[0, 1], [2], [3]]),
        ("per-task", 6, [[0], [0], [1], [2], [2], [3]]),
    ],
)
def test_tasks_are_bound_to_cores_of_their_rank(
    option: str, ntasks: int, cores: list[list[int]]
) -> None:
    """20.overview.7: core affinity by R."""
    options = {"cpu-affinity": option, "per-resource": {"type": "node", "count": ntasks}}
    made = start(jobspec(options=options, cores_per_task=4), gpu_node(0))
    assert [task.cores for task in made.tasks] == cores


@pytest.mark.parametrize(
    ("options", "gpus", "named"),
    [
        ({}, 2, ["0,1", "0,1"]),
        ({}, 0, ["-1", "-1"]),
        ({"gpu-affinity": "per-task"}, 5, ["0,1", "2,3"]),
        ({"gpu-affinity": "per-task"}, 1, ["-1", "-1"]),
        ({"gpu-affinity": "off"}, 2, [None, None]),
    ],
)
def test_tasks_are_told_the_gpus_of_their_rank(
    options: dict[str, str], gpus: int, named: list[str | None]
) -> None:
    """20.overview.7: gpu affinity by R."""
    made = start(jobspec(options=options, ntasks=2), gpu_node(gpus))
    assert [task.env.get("CUDA_VISIBLE_DEVICES") for task in made.tasks] == named
    assert ("CUDA_DEVICE_ORDER" in made.env) == (named[0] is not None)


def test_order_of_gpus_may_be_the_user_s() -> None:
    made = jobspec(options={}, environment={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    assert start(made, gpu_node(1)).env["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"


@pytest.mark.parametrize("option", ["cpu-affinity", "gpu-affinity"])
def test_affinity_that_is_not_known_is_refused(option: str) -> None:
    made = jobspec(options={option: "map:0"})
    with pytest.raises(LayoutError, match=f"{option}: expected one of on, off, per-task, got"):
        start(made, resources())


# What is filled in


def test_commands_have_the_tags_of_each_task() -> None:
    made = jobspec("echo", "{{id}}-{{taskid}}", "{{node.cores}}", options={}, ntasks=2)
    assert [task.argv for task in start(made, resources({3: 1, 5: 1})).tasks] == [
        ["echo", "ƒ21-0", "0"],
        ["echo", "ƒ21-1", "0"],
    ]


def test_command_without_tags_is_the_job_s() -> None:
    made = start(jobspec("echo", "{id}", options={}), resources())
    assert (made.argv, made.tasks[0].argv) == (["echo", "{id}"], [])


def test_texts_with_tags_are_bounded_for_all_tasks_together() -> None:
    """Each task has its own copy: a megabyte would be 16 gigabytes for as many tasks as may be."""
    start(jobspec("{{id}}" + "x" * 1000, options={}, ntasks=1000), resources({0: 1000}))
    made = jobspec("{{id}}" + "x" * 1_000_000, options={}, ntasks=1000)
    with pytest.raises(LayoutError, match=r"at most 16777216 characters .* got \d+ for 17 of 1000"):
        start(made, resources({0: 1000}))


def test_environment_is_filled_in_where_it_is_asked_for() -> None:
    made = jobspec(options={"env-expand": {"OUT": "{{id.words}}.{{task.id}}", "N": 1}})
    (task,) = start(made, resources()).tasks
    assert task.env["OUT"] == f"{format_fluid(58, 'words')}.0"
    assert "N" not in task.env


# Limits


def test_limits_go_to_the_shell_host() -> None:
    assert start(jobspec(options={}), resources()).limits == {}
    limits = {"nofile": 64, "core": -1}
    assert start(jobspec(options={"rlimit": limits}), resources()).limits == limits


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"nosuch": 1}, "rlimit: expected names of limits"),
        ({"nofile": "1"}, "rlimit.*: expected int, got str"),
        ({"nofile": -2}, "rlimit.*: expected int"),
        ("nofile", "rlimit: expected object, got str"),
    ],
)
def test_limits_that_cannot_be_are_refused(limits: object, text: str) -> None:
    with pytest.raises(FormatError, match=text):
        start(jobspec(options={"rlimit": limits}), resources())


# Files


def test_files_are_emptied_unless_they_are_to_be_kept() -> None:
    appends = {None: False, "truncate": False, "append": True}
    for mode, kept in appends.items():
        assert start(jobspec(options={"output.mode": mode}), resources()).append is kept
    wrong = jobspec(options={"output.mode": "a"})
    assert start(wrong, resources()).append is False
    assert remarks_of(wrong) == [
        "output: ignoring invalid output.mode=a: expected append or truncate"
    ]


def test_an_interactive_terminal_is_refused_but_for_an_instance_with_a_command() -> None:
    options = {"pty.interactive": 1}
    with pytest.raises(LayoutError, match="there are no pseudo-terminals"):
        check_terminal(jobspec("bash", options=options))
    check_terminal(jobspec("flux", "broker", "hostname", options=options))
    check_terminal(jobspec("bash", options={"pty": 1}))
    for without_command in (["broker"], ["broker", "-Sa=b"], ["start"]):
        with pytest.raises(LayoutError, match="flux alloc --bg, then flux proxy JOB"):
            check_terminal(jobspec("flux", *without_command, options=options))


def test_tasks_have_pmi_1_unless_it_is_off_and_no_other() -> None:
    def pmi(ntasks: int, **options: object) -> object:
        return start(jobspec(ntasks=ntasks, options=options), gpu_node(0)).pmi

    assert pmi(2) == pmi(2, pmi="simple") == pmi(2, pmi="pmix,pmi2") == {}
    assert (pmi(1), pmi(2, pmi="off")) == (None, None)
    for other in ("pmix", "cray-pals,pmix", "", 1):
        with pytest.raises(FormatError, match=r"options\.pmi: expected simple, pmi1 or pmi2"):
            pmi(2, pmi=other)


def test_input_is_a_file_with_a_path_or_what_commands_send() -> None:
    types = {"service": True, None: False}
    for kind, takes in types.items():
        assert start(jobspec(options={"input.stdin": {"type": kind}}), resources()).input is takes
    with pytest.raises(FormatError, match=r'stdin\.type: expected service or file, got "foobar"'):
        start(jobspec(options={"input.stdin": {"type": "foobar"}}), resources())
    with pytest.raises(FormatError, match=r"stdin\.path: expected the path of a file"):
        start(jobspec(options={"input.stdin": {"type": "file"}}), resources())


TMP = {"FLUX_JOB_TMPDIR": "/s/shell/tmp", "FLUX_JOB_ID_PATH": "/ƒ1"}


def started_with(environment: dict[str, str], files: Any, *command: str) -> Start:
    spec = Jobspec.from_command(command or ("true",), attributes={"system.files": files})
    r = ResourceSet.build([(3, 1, 0)], lambda rank: f"node{rank}")
    return start_request(7, spec, r, place_tasks(spec, r), environment)


def test_files_travel_to_the_jobs_directory() -> None:
    files = {
        "script": {"mode": 33216, "data": "#!/bin/sh\n", "encoding": "utf-8"},
        "bytes": {"data": "AP8=", "encoding": "base64"},
        "conf/a.json": {"mode": 33152, "data": {"a": 1}},
    }
    start = started_with(TMP, files, "{{tmpdir}}/script")
    assert {each.name: (each.data, each.mode) for each in start.files} == {
        "script": (b"#!/bin/sh\n", 33216),
        "bytes": (b"\x00\xff", 0o600),
        "conf/a.json": (b'{"a":1}', 33152),
    }
    assert start.tmpdir
    assert start.env["FLUX_JOB_TMPDIR"] == "/s/shell/tmp/7"
    assert start.tasks[0].argv == ["/s/shell/tmp/7/script"]


def test_program_of_a_broker_is_quoted_for_its_shell_where_the_path_has_blanks() -> None:
    option, script = "-c{{tmpdir}}/conf.json", "{{tmpdir}}/script"
    for tmpdir, quoted in (("/s/7", "/s/7"), ("/a b/7", "'/a b/7'")):

        def argv(*words: str, base: str = tmpdir.removesuffix("/7")) -> list[str]:
            return started_with({"FLUX_JOB_TMPDIR": base}, {}, *words).tasks[0].argv

        conf, plain = f"-c{tmpdir}/conf.json", f"{tmpdir}/script"
        broker = ["flux", "broker"]
        assert argv(*broker, option, script) == [*broker, conf, f"{quoted}/script"]
        assert argv(*broker, option, script, "{{size}}") == [*broker, conf, plain, "1"]
        assert argv(*broker, "cat", script) == [*broker, "cat", plain]
        assert argv(script) == [plain]


@pytest.mark.parametrize(
    "files",
    [
        {"/etc/x": {"data": ""}},
        {"../x": {"data": ""}},
        {"a//b": {"data": ""}},
        {"x": {"mode": 33216}},
        {"x": {"data": "&", "encoding": "base64"}},
        {"x": {"data": ["sha1-x"], "encoding": "blobvec"}},
    ],
)
def test_files_that_cannot_travel_are_refused_by_name(files: Any) -> None:
    with pytest.raises(FormatError, match=r"system\.files"):
        started_with(TMP, files)


def test_a_job_in_a_job_knows_the_way_from_the_top() -> None:
    start = started_with(TMP, {})
    assert start.env["FLUX_JOB_ID_PATH"] == f"/ƒ1/{start.env['FLUX_JOB_ID']}"
    assert start.env["FLUX_KVS_NAMESPACE"] == "job-7"
    assert start.pmi == {
        "flux.instance-level": "2",
        "flux.taskmap": '{"version":1,"map":[[0,1,1,1]]}',
        "PMI_process_mapping": "(vector,(0,1,1))",
    }
    without = started_with({}, {})
    assert (without.pmi, without.tmpdir) == (None, False)
