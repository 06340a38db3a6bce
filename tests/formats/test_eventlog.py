import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import (
    Event,
    FormatError,
    format_event,
    format_eventlog,
    parse_event,
    parse_eventlog,
)

SAMPLE = """\
{"timestamp":1552593348.073045,"name":"submit","context":{"urgency":16,"userid":5588,"flags":0}}
{"timestamp":1552593547.411336,"name":"urgency","context":{"urgency":0,"userid":5588}}
{"timestamp":1552593348.088391,"name":"alloc","context":{"note":"rank0/core[0-1]"}}
{"timestamp":1552593348.093541,"name":"free"}
{"timestamp":1552593348.089787,"name":"start"}
{"timestamp":1552593348.092830,"name":"release","context":{"ranks":"all","final":true}}
{"timestamp":1552593348.090927,"name":"finish","context":{"status":0}}
{"timestamp":1552593348.104432,"name":"clean"}
"""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
events = st.builds(
    Event,
    timestamp=st.floats(0, 1e12, exclude_min=True),
    name=st.text(),
    context=st.none() | st.dictionaries(st.text(), json_values, max_size=3),
)


def test_the_sample_log_reads_line_by_line() -> None:
    """18.format.9: no order of times, no later keys; the third line's key is put in quotes."""
    log = parse_eventlog(SAMPLE)
    names = ["submit", "urgency", "alloc", "free", "start", "release", "finish", "clean"]
    assert [event.name for event in log] == names
    assert log[0] == Event(1552593348.073045, "submit", {"urgency": 16, "userid": 5588, "flags": 0})
    assert log[3].context is None
    assert format_eventlog(log) == SAMPLE.replace("092830", "09283")


def test_the_third_line_as_printed_in_the_rfc_is_not_json() -> None:
    """18.format.9: a key without quotes is an error that names its line."""
    with pytest.raises(FormatError, match=r"^line 3: expected well-formed data"):
        parse_eventlog(SAMPLE.replace('"context":{"note"', 'context:{"note"'))


@given(st.lists(events, min_size=1, max_size=4))
def test_written_logs_read_back(log: list[Event]) -> None:
    """18.format.1, 18.format.2: one JSON object per line, every line ended by a newline."""
    text = format_eventlog(log)
    assert text.endswith("\n")
    lines = text.split("\n")[:-1]
    assert len(lines) == len(log)
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert parse_eventlog(text) == log
    assert parse_event(format_event(log[0])) == log[0]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"timestamp":1,"name":"a"}', "line 1: expected a newline"),
        ('{"timestamp":1,"name":"a"}\n{"timestamp":1,"na', "line 2: expected a newline"),
        ('{"timestamp":1,"name":"a"}\n\n', "line 2: expected well-formed data"),
        (
            '{"timestamp":1,"name":"a"}{"timestamp":1,"name":"a"}\n\n',
            "line 1: expected well-formed",
        ),
        (
            '{"timestamp":1,\n"name":"a"}{"timestamp":1,"name":"a"}\n',
            "line 1: expected well-formed",
        ),
        ('{"timestamp":1,"name":"a","context":null}\n', "line 1.context: expected an object"),
        ('[{"timestamp":1,"name":"a"}]\n', "line 1: expected object, got array"),
        ('{"timestamp":1,\n"name":"a"}\n', "line 1: expected well-formed data"),
        ('{"timestamp":1,"name":"a"}\n{"timestamp":1}\n', "line 2: expected the key name"),
    ],
)
def test_logs_that_are_not_whole_lines_of_events_are_refused(text: str, place: str) -> None:
    """18.format.1, 18.format.3: whole lines only."""
    with pytest.raises(FormatError) as caught:
        parse_eventlog(text)
    assert str(caught.value).startswith(place)


@pytest.mark.parametrize("line", ['{"timestamp":1,\n"name":"a"}', '{"timestamp":1,"name":"a"}\n\n'])
def test_an_event_on_several_lines_is_refused(line: str) -> None:
    """18.format.2: no embedded newlines."""
    with pytest.raises(FormatError, match="on one line"):
        parse_event(line)


def test_a_write_is_of_one_event_or_more() -> None:
    """18.format.3, 18.format.4: an append holds whole events, and a log is not created empty."""
    with pytest.raises(FormatError, match="one event or more"):
        format_eventlog([])
    assert parse_eventlog("") == []


@pytest.mark.parametrize("timestamp", ["0", "-1", '"1"', "null", "true", "1e999"])
def test_a_timestamp_is_a_number_above_zero(timestamp: str) -> None:
    """18.format.6: seconds since the epoch."""
    with pytest.raises(FormatError, match=r"^timestamp: expected"):
        parse_event(f'{{"timestamp":{timestamp},"name":"a"}}')


@pytest.mark.parametrize("timestamp", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_timestamp_is_not_written(timestamp: float) -> None:
    """18.format.6: seconds since the epoch."""
    with pytest.raises(FormatError, match="timestamp: expected a number above 0"):
        format_event(Event(timestamp, "a"))


@pytest.mark.parametrize(
    ("text", "timestamp"), [("1", 1.0), ("1552593348.073045", 1552593348.073045)]
)
def test_a_timestamp_may_have_a_fraction(text: str, timestamp: float) -> None:
    """18.format.6: or be whole."""
    assert parse_event(f'{{"timestamp":{text},"name":"a"}}').timestamp == timestamp


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"name":"a"}', "expected the key timestamp, got nothing"),
        ('{"timestamp":1}', "expected the key name, got nothing"),
        ('{"timestamp":1,"name":5}', "name: expected str, got int"),
        ('{"timestamp":"1","name":"a"}', "timestamp: expected float, got str"),
    ],
)
def test_required_keys(line: str, message: str) -> None:
    """18.format.6, 18.format.7: timestamp and name, of their types."""
    with pytest.raises(FormatError) as caught:
        parse_event(line)
    assert str(caught.value) == message


@pytest.mark.parametrize("context", ['"x"', "[]", "5", "null"])
def test_a_context_is_an_object(context: str) -> None:
    """18.format.8: if present."""
    with pytest.raises(FormatError, match="context: expected"):
        parse_event(f'{{"timestamp":1,"name":"context","context":{context}}}')


def test_a_context_may_be_left_out_or_empty() -> None:
    """18.format.8: and is then not written, or written empty."""
    assert parse_event('{"timestamp":1,"name":"context"}').context is None
    assert parse_event('{"timestamp":1,"name":"a","context":{}}').context == {}
    assert format_event(Event(1.5, "a")) == '{"timestamp":1.5,"name":"a"}\n'
    assert format_event(Event(1.5, "a", {})) == '{"timestamp":1.5,"name":"a","context":{}}\n'


def test_other_keys_are_ignored() -> None:
    assert parse_event('{"timestamp":1,"name":"a","later":[1]}') == Event(1.0, "a")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "x",
        '{"timestamp":NaN,"name":"a"}',
        pytest.param('{"timestamp":1,"name":"\ud800"}', id="lone surrogate"),
    ],
)
def test_other_text_is_refused(line: str) -> None:
    with pytest.raises(FormatError):
        parse_event(line)


def test_deep_nesting_is_refused() -> None:
    context = '{"a":' + "[" * 20000 + "]" * 20000 + "}"
    with pytest.raises(FormatError, match="that JSON can carry"):
        parse_event(f'{{"timestamp":1,"name":"a","context":{context}}}')
