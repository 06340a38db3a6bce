"""Jobspecs (RFC 25): attributes."""

import pytest

from flux_trio.formats import Jobspec, parse_constraint
from tests.support.jobspecs import complaint, jobspec, system
from tests.support.reading import value_or_error

# Attributes


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (None, "attributes: expected an object, got None"),
        ({}, "attributes.system: expected an object, got nothing"),
        ({"user": {}}, "attributes.system: expected an object, got nothing"),
        ({"system": []}, "attributes.system: expected an object, got []"),
        ({"system": {"duration": 0}, "user": 1}, "attributes.user: expected an object, got 1"),
        (
            {"system": {"duration": 0}, "site": {}},
            'attributes: expected only the keys system, user, got the key "site"',
        ),
    ],
)
def test_attributes_are_of_the_system_and_the_user(attributes: object, text: str) -> None:
    """25.attributes.1: a dictionary of dictionaries; system is required."""
    assert complaint(jobspec(attributes=attributes)) == text


@pytest.mark.parametrize("duration", [-1, -0.5, "60s", None, True, float("nan"), float("inf")])
def test_duration_is_a_number_of_seconds(duration: object) -> None:
    """25.attributes.2: at least 0."""
    text = complaint(system(duration=duration))
    assert text.startswith("attributes.system.duration: expected a number of seconds, at least 0")


def test_duration_may_be_absent() -> None:
    """readings: The key duration. Where the job is submitted to may have a default."""
    assert Jobspec.parse(jobspec(attributes={"system": {}})).duration == 0.0
    assert Jobspec.parse(system(duration=0)).duration == 0.0
    assert Jobspec.parse(system(duration=1.5)).duration == 1.5


@pytest.mark.parametrize("value", [None, 1, "x", [1, {}], {"deep": {"er": []}}])
def test_unknown_attributes_are_kept(value: object) -> None:
    """14.attributes.1, 25.attributes.3: any name of `system`, any type of value."""
    given = system(exec={"test": value}, unheard_of=value)
    assert value_or_error(lambda: Jobspec.parse(given).to_json()) == given
    parsed = Jobspec.parse(given)
    assert parsed.attribute("system.exec.test") == value
    assert parsed.attribute("system.unheard-of") == value
    assert parsed.to_json()["attributes"] == parsed.json["attributes"]


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"cwd": 1}, "cwd: expected a string, got 1"),
        ({"queue": None}, "queue: expected a string, got None"),
        ({"bank": 1}, "bank: expected a string, got 1"),
        ({"environment": []}, "environment: expected an object, got []"),
        ({"environment": {"A": 1}}, "environment.A: expected a string, or null to unset, got 1"),
        ({"job": {"name": 1}}, "job.name: expected a string, got 1"),
        ({"shell": []}, "shell: expected an object, got []"),
        ({"shell": {"options": 1}}, "shell.options: expected an object, got 1"),
    ],
)
def test_known_attributes_are_checked(attributes: dict[str, object], text: str) -> None:
    """25.attributes.3: the common keys mean what RFC 14 says."""
    assert complaint(system(**attributes)) == f"attributes.system.{text}"


def test_the_common_attributes() -> None:
    """25.attributes.3, 14.attributes.4: each is optional; null unsets a variable."""
    parsed = Jobspec.parse(
        system(cwd="/x", queue="batch", environment={"A": "1", "B": None}, preemptible_after=0)
    )
    assert (parsed.cwd, parsed.queue) == ("/x", "batch")
    assert parsed.environment == {"A": "1", "B": None}
    bare = Jobspec.parse(jobspec())
    assert (bare.cwd, bare.queue, bare.environment, bare.constraints) == (None, None, {}, None)


@pytest.mark.parametrize(
    ("dependencies", "text"),
    [
        ({}, ": expected an array, got {}"),
        ("afterok:1", ': expected an array, got "afterok:1"'),
        ([], ": expected at least one dependency (or leave out the key), got []"),
        (["afterok:1"], '[0]: expected an object, got "afterok:1"'),
        ([{"scheme": "afterok"}], "[0].value: expected a string, got nothing"),
        ([{"scheme": "afterok", "value": 1}], "[0].value: expected a string, got 1"),
        ([{"value": "1"}], "[0].scheme: expected a string, got nothing"),
    ],
)
def test_dependencies_are_a_list_of_objects(dependencies: object, text: str) -> None:
    """14.attributes.6, 26.format.1, 26.format.4: scheme and value are strings."""
    expected = f"attributes.system.dependencies{text}"
    assert complaint(system(dependencies=dependencies)) == expected


def test_other_keys_of_a_dependency_are_its_schemes_business() -> None:
    """26.format.2: no key is refused for being unknown."""
    dependencies = [{"scheme": "string", "value": "foo", "type": "out", "x": 1}]
    given = system(dependencies=dependencies)
    assert value_or_error(lambda: Jobspec.parse(given).to_json()) == given


def test_constraints_are_checked_and_parsed() -> None:
    """14.attributes.7: an RFC 31 object."""
    text = complaint(system(constraints=[{"properties": ["a"]}]))
    assert text.startswith("attributes.system.constraints: expected an object")
    text = complaint(system(constraints={"properties": ["a|b"]}))
    assert text.startswith("attributes.system.constraints.properties[0]: expected a property name")
    constraint = {"and": [{"properties": ["a"]}, {"ranks": ["0-3"]}]}
    assert Jobspec.parse(system(constraints=constraint)).constraints == parse_constraint(constraint)


@pytest.mark.parametrize("value", [-1, None, "0", True])
def test_preemptible_after_is_a_number_of_seconds(value: object) -> None:
    """14.attributes.8: at least 0; without the key the job is not preemptible."""
    text = complaint(system(preemptible_after=value))
    assert text.startswith("attributes.system.preemptible-after: expected a number of seconds")


def test_an_attribute_that_is_not_there_is_none() -> None:
    parsed = Jobspec.parse(system(exec="x"))
    assert parsed.attribute("system.exec.test.run_duration") is None
    assert parsed.attribute("user.x") is None
