from __future__ import annotations

import pytest

from flux_trio.cli.terminal.events import EventTexts, event_text, matches, read_match
from flux_trio.formats import Event

RAISED = Event(1.0, "exception", {"type": "cancel", "severity": 0, "note": "a b"})


def test_an_event_is_time_name_and_context_in_order() -> None:
    line = '{"timestamp":1552593348.073045,"name":"submit","context":{"urgency":16,"a":"x y"}}'
    assert event_text(line) == '1552593348.073045 submit urgency=16 a="x y"'


@pytest.mark.parametrize("times", ["iso", "human", "raw", "offset"])
def test_an_event_of_no_date_is_shown(times: str) -> None:
    assert EventTexts(times=times).text('{"timestamp":1e300,"name":"clean"}')


def test_an_event_without_context_is_time_and_name() -> None:
    assert event_text('{"timestamp":1.5,"name":"clean"}') == "1.500000 clean"


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (None, True),
        (("type", "cancel"), True),
        (("type", '"cancel"'), True),
        (("severity", "0"), True),
        (("severity", "1"), False),
        (("nosuch", "0"), False),
    ],
)
def test_a_match_is_of_one_value(match: tuple[str, str] | None, expected: bool) -> None:
    assert matches(RAISED, "exception", match) is expected
    assert not matches(RAISED, "start", match)


def test_a_match_has_key_and_value() -> None:
    assert read_match("note=a=b") == ("note", "a=b")
    with pytest.raises(ValueError, match="must specify a context test as key=value"):
        read_match("note")
