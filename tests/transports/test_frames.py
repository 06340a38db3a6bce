"""Frames as they come: where they are cut, and which no client needs."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.messages import RemoteProtocolError
from flux_trio.transports.frames import CONTROL_FRAMES_PER_S_MAX, FRAGMENT_BYTES_MIN, Frames, Piece

LONG = FRAGMENT_BYTES_MIN


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    """A frame of a client, with a mask that changes nothing."""
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 1 << 16:
        length = b"\xfe" + struct.pack("!H", size)
    else:
        length = b"\xff" + struct.pack("!Q", size)
    return bytes([(0x80 if fin else 0) | opcode]) + length + bytes(4) + payload


def pieces_of(frames: Frames, now: float = 0.0) -> list[Piece]:
    pieces = []
    while (piece := frames.pop(now)) is not None:
        pieces.append(piece)
    return pieces


def test_each_message_and_each_control_frame_is_a_piece_of_its_own() -> None:
    frames = Frames()
    whole = [frame(2, b"a"), frame(9), frame(2), frame(1, b"text"), frame(8, b"\x03\xe8")]
    frames.feed(b"".join(whole))
    assert pieces_of(frames) == [
        Piece(data, is_message) for data, is_message in zip(whole, [1, 0, 1, 1, 0], strict=True)
    ]


def test_long_fragments_are_passed_on_before_their_message_ends() -> None:
    frames = Frames()
    first, last = frame(2, b"x" * LONG, fin=False), frame(0, b"y")
    frames.feed(first + frame(10) + last)
    assert pieces_of(frames) == [Piece(first + frame(10), False), Piece(last, True)]


def test_bytes_that_come_one_by_one_are_kept_until_they_are_worth_a_piece() -> None:
    frames = Frames()
    whole = frame(2, b"x" * (LONG + 100))
    found = []
    for place in range(len(whole)):
        frames.feed(whole[place : place + 1])
        found += pieces_of(frames)
    assert [len(piece.data) for piece in found] == [LONG, len(whole) - LONG]


@given(st.lists(st.tuples(st.sampled_from([1, 2, 9, 10]), st.integers(0, 9000))), st.data())
def test_pieces_are_what_came_however_it_is_cut(
    sent: list[tuple[int, int]], data: st.DataObject
) -> None:
    whole = b"".join(frame(op, b"x" * min(size, 125 if op & 8 else size)) for op, size in sent)
    frames, found, rest = Frames(), [], whole
    now = 0.0
    while rest:
        now += 1.0
        size = data.draw(st.integers(1, len(rest)))
        frames.feed(rest[:size])
        rest = rest[size:]
        while (piece := frames.pop(now)) is not None:
            found.append(piece)
            now += 1.0
    assert b"".join(piece.data for piece in found) == whole
    assert sum(piece.is_message for piece in found) == sum(not op & 8 for op, _ in sent)


@pytest.mark.parametrize("size", [0, 1, LONG - 1])
@pytest.mark.parametrize("opcode", [0, 2])
def test_short_fragment_is_a_violation(opcode: int, size: int) -> None:
    frames = Frames()
    frames.feed(frame(2, b"x" * LONG, fin=False) + frame(opcode, b"x" * size, fin=False))
    with pytest.raises(RemoteProtocolError, match=f"at least {LONG} bytes in each .* got {size}"):
        pieces_of(frames)


@pytest.mark.parametrize("opcode", [9, 10])
def test_control_frames_of_a_second_are_bounded(opcode: int) -> None:
    frames = Frames()
    for second in range(3):
        frames.feed(frame(opcode) * CONTROL_FRAMES_PER_S_MAX)
        assert len(pieces_of(frames, float(second))) == CONTROL_FRAMES_PER_S_MAX
    frames.feed(frame(opcode) * 2)
    with pytest.raises(RemoteProtocolError, match="at most 64 pings and pongs in a second"):
        pieces_of(frames, 2.9)


@pytest.mark.parametrize("bad", [b"\xf2\x80", b"\x83\x80", b"\x82\x00", b"\x89\xfe"])
def test_what_is_no_frame_of_a_client_is_passed_on_at_once(bad: bytes) -> None:
    frames = Frames()
    frames.feed(bad)
    assert pieces_of(frames) == [Piece(bad, False)]
