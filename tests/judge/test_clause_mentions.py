"""The scan that finds which tests name which clauses."""

import pytest

from tests.support.clause_mentions import clause_mentions, ids_in, mentions_in

MODULE = '''
"""1.module.1: the docstring of a module is not a test."""

def helper():
    """1.helper.1"""

def test_docstring():
    """1.first.1, 1.first.2: both are named.

    1.later.1 is only talked about.
    """
    assert x, "1.message.1"  # 1.comment.1

async def test_strings():
    """1.async.1: and the strings after it."""
    "1.string.1"
    "1.string.2: and more"
    x = 1
    "1.late.1"

@pytest.mark.parametrize(("clause", "n"), [("1.value.1", 1), pytest.param(2, 2, id="1.id.1")])
@pytest.mark.usefixtures("1.mark.1")
def test_parameters(clause, n):
    pass

class TestGroup:
    def test_method(self):
        """1.method.1"""

def test_silent():
    pass
'''


TEXTS = [
    ("3.routing.1: the part", ["3.routing.1"]),
    ("(28.online.3).", ["28.online.3"]),
    ("32.start.29.", ["32.start.29"]),
    ("32.start.25-27, 32.hello.1", ["32.start.25", "32.start.26", "32.start.27", "32.hello.1"]),
    ("node1.cluster.3 v1.2.3 1.5 s job.0000.R 10.a.1b", []),
]


def test_a_test_names_clauses_in_its_docstring_leading_strings_and_parameters():
    assert mentions_in(MODULE) == [
        ("test_docstring", ["1.first.1", "1.first.2"]),
        ("test_strings", ["1.async.1", "1.string.1", "1.string.2"]),
        ("test_parameters", ["1.value.1", "1.id.1"]),
        ("TestGroup::test_method", ["1.method.1"]),
    ]


@pytest.mark.parametrize(("text", "ids"), TEXTS)
def test_ids_are_found_in_running_text(text, ids):
    assert ids_in(text) == ids


def test_files_below_the_directory_are_scanned(tmp_path):
    for name in ("b/test_two.py", "a/test_one.py", "a/one.py"):
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('def test_it():\n    """1.a.1"""\n')
    assert clause_mentions(tmp_path / "tests") == {
        "1.a.1": ["tests/a/test_one.py::test_it", "tests/b/test_two.py::test_it"]
    }
