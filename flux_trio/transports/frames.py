"""The frames of a WebSocket (RFC 6455, 5.2) as they come, before trio-websocket takes them. Pure.

trio-websocket works through all that it has received without a pause, at some 50 us a frame,
however little is in the frame, and keeps each piece of a message as an object. A frame of no bytes
takes 6 on the wire. So what it gets is cut here: a piece ends with its message, or is at least as
long as a fragment must be. Fragments that are shorter, and many control frames, are violations: no
client needs them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from flux_trio.messages import RemoteProtocolError

FRAGMENT_BYTES_MIN: Final = 4096  # of each frame of a message but the last
CONTROL_FRAMES_PER_S_MAX: Final = 64  # pings, pongs; keeping a connection alive takes one in 20 s

_FIN: Final = 0x80
_RESERVED: Final = 0x70
_OPCODE: Final = 0x0F
_OPCODES: Final = (0, 1, 2, 8, 9, 10)
_CONTROL: Final = 0x08
_CONTROL_BYTES_MAX: Final = 125
_MASK: Final = 0x80
_LENGTH: Final = 0x7F
_MASK_BYTES: Final = 4
_LENGTH_BYTES: Final = {126: 2, 127: 8}  # of the length that follows the first two bytes


class Piece(NamedTuple):
    """Bytes to pass on; `is_message` if they end a message, which is decoded then."""

    data: bytes
    is_message: bool


class Frames:
    """What a client has sent and nobody has taken; the bytes begin with a frame."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._seen = 0  # of `waiting`: whole headers, and payload
        self._payload = 0  # bytes of the frame that has begun, yet to come
        self._ends = False  # a piece ends with that frame
        self._is_message = False  # and a message, too
        self._second = 0.0  # since when control frames are counted
        self._controls = 0

    def feed(self, data: bytes | bytearray) -> None:
        self._waiting += data

    def pop(self, now: float) -> Piece | None:
        """Return the next piece; None if more bytes must come first. Raises RemoteProtocolError."""
        while self._pass_payload() and not self._ends and self._pass_header(now):
            pass
        has_ended = self._ends and not self._payload
        if not (has_ended or self._seen >= FRAGMENT_BYTES_MIN):
            return None
        piece = Piece(bytes(self._waiting[: self._seen]), has_ended and self._is_message)
        del self._waiting[: self._seen]
        self._seen = 0
        if has_ended:
            self._ends = self._is_message = False
        return piece

    def _pass_payload(self) -> bool:
        """Pass what has come of a frame; return whether that was all of it."""
        come = min(self._payload, len(self._waiting) - self._seen)
        self._seen += come
        self._payload -= come
        return not self._payload

    def _pass_header(self, now: float) -> bool:
        """Pass the header of a frame; return False if it has not come whole."""
        start = self._seen
        header = bytes(self._waiting[start : start + 2])
        if len(header) < 2:
            return False
        first, second = header
        short = second & _LENGTH
        if not _is_frame(first, second):  # trio-websocket says what is wrong
            self._seen, self._ends = len(self._waiting), True
            return True
        nlength = _LENGTH_BYTES.get(short, 0)
        end = start + 2 + nlength + _MASK_BYTES
        if len(self._waiting) < end:
            return False
        length = self._waiting[start + 2 : start + 2 + nlength]
        self._payload = int.from_bytes(length, "big") if nlength else short
        self._seen = end
        if first & _CONTROL:
            self._count_control(now)
            self._ends = True
        elif first & _FIN:
            self._ends = self._is_message = True
        elif self._payload < FRAGMENT_BYTES_MIN:
            expected = (
                f"at least {FRAGMENT_BYTES_MIN} bytes in each frame of a message but the last"
            )
            raise RemoteProtocolError(f"fragment: expected {expected}, got {self._payload}")
        return True

    def _count_control(self, now: float) -> None:
        if now - self._second >= 1.0:
            self._second, self._controls = now, 0
        self._controls += 1
        if self._controls > CONTROL_FRAMES_PER_S_MAX:
            expected = f"at most {CONTROL_FRAMES_PER_S_MAX} pings and pongs in a second"
            raise RemoteProtocolError(f"control frames: expected {expected}, got more")


def _is_frame(first: int, second: int) -> bool:
    """Return whether a frame of a client may begin with these bytes."""
    is_known = not first & _RESERVED and first & _OPCODE in _OPCODES and second & _MASK != 0
    return is_known and not (first & _CONTROL and second & _LENGTH > _CONTROL_BYTES_MAX)
