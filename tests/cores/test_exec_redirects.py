"""Files for standard streams: from jobspec to paths."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.exec.placement import place_tasks
from flux_trio.cores.exec.tasks import labeled_streams, redirects_of, start_request
from flux_trio.cores.exec.templates import filled_in
from flux_trio.formats import Jobspec
from tests.support.exec_script import resources

FILE = {"type": "file"}


def jobspec(command: str = "/bin/ls", **options: Any) -> Jobspec:
    place = "system.shell.options."
    attributes = {place + key.replace("_", "."): value for key, value in options.items()}
    return Jobspec.from_command([command], ntasks=2, attributes=attributes)


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ({}, {}),
        ({"output_stdout": {**FILE, "path": "o"}}, {"stdout": "o", "stderr": "o"}),
        ({"output_stderr": {**FILE, "path": "e"}}, {"stderr": "e"}),
        ({"input_stdin": {**FILE, "path": "i"}}, {"stdin": "i"}),
        ({"output_stdout": {"type": "kvs"}}, {}),
        ({"output_stdout": {**FILE, "path": 1}}, {}),
        ({"output": "nonsense"}, {}),
    ],
)
def test_a_file_is_what_the_options_say(options: dict[str, Any], files: dict[str, str]) -> None:
    assert redirects_of(jobspec(**options)) == files


LABELED = {**FILE, "path": "o", "label": True}


@pytest.mark.parametrize(
    ("options", "labeled"),
    [
        ({"output_stdout": {**FILE, "path": "o"}}, []),
        ({"output_stdout": LABELED}, ["stdout", "stderr"]),
        ({"output_stdout": LABELED, "output_stderr": {"type": "kvs"}}, ["stdout"]),
        ({"output_stdout": LABELED, "output_stderr": {**FILE, "path": "e"}}, ["stdout", "stderr"]),
        ({"output_stdout": LABELED, "output_stderr": {**LABELED, "label": False}}, ["stdout"]),
        ({"output_stderr": LABELED}, ["stderr"]),
        ({"output_stdout": {"label": True}}, []),
    ],
)
def test_errors_have_the_label_of_output_unless_told(
    options: dict[str, Any], labeled: list[str]
) -> None:
    made = jobspec(**options)
    assert labeled_streams(made) == labeled
    r = resources({3: 2})
    assert start_request(58, made, r, place_tasks(made, r), {}).labeled == labeled


def test_tags_are_filled_in_for_each_task() -> None:
    template = (
        "{{id}} {{jobid.dec}} {{id.hex}} {{name}} {{nnodes}} {{size}} "
        "{{task.rank}} {{task.index}} {{node.id}} {{node.name}} {{nosuch}}"
    )
    made = jobspec(output_stdout={**FILE, "path": template})
    r = resources({3: 1, 5: 1})
    start = start_request(58, made, r, place_tasks(made, r), {})
    assert [task.files["stdout"] for task in start.tasks] == [
        "ƒ21 58 0x3a ls 2 2 0 0 0 node3 {{nosuch}}",
        "ƒ21 58 0x3a ls 2 2 1 0 1 node5 {{nosuch}}",
    ]


def test_without_tags_a_path_is_itself() -> None:
    assert filled_in("a{b}{{c", {"b": "x"}) == "a{b}{{c"
