from typing import Annotated

import msgspec
import pytest

from flux_trio.messages import Errno, Event, FluxError, Request, Response, expect_payload


class Alloc(msgspec.Struct):
    id: int
    priority: Annotated[int, msgspec.Meta(ge=0)] = 16


class Nothing(msgspec.Struct):
    pass


def test_a_payload_becomes_a_typed_value() -> None:
    assert expect_payload(Request("sched.alloc", {"id": 2**63}), Alloc) == Alloc(2**63)
    assert expect_payload(Event("a", {"id": 1, "priority": 3, "more": True}), Alloc) == Alloc(1, 3)


def test_no_payload_is_an_empty_object() -> None:
    assert expect_payload(Response("a"), Nothing) == Nothing()


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (None, "sched.alloc: payload: Object missing required field `id`"),
        ({"id": "1"}, "sched.alloc: payload: Expected `int`, got `str` - at `$.id`"),
        ({"id": 1, "priority": -1}, "sched.alloc: payload: Expected `int` >= 0 - at `$.priority`"),
        ("text", "sched.alloc: payload: Expected `object`, got `str`"),
        ("\udccd", "sched.alloc: payload: expected an object, got bytes that are not UTF-8"),
    ],
)
def test_another_shape_is_a_protocol_error_that_says_where(
    payload: dict[str, object] | str | None, text: str
) -> None:
    with pytest.raises(FluxError) as caught:
        expect_payload(Request("sched.alloc", payload), Alloc)
    assert (caught.value.errnum, str(caught.value)) == (Errno.EPROTO, text)
