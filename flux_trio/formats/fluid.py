"""RFC 19 FLUIDs, the 64-bit job ids: parse them, print them and make new ones.

An id has 40 bits of milliseconds since the generator's epoch, 14 bits of generator id and 10 bits
of sequence number. The emoji form is refused with an error that names it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, assert_never

from flux_trio.formats.errors import FormatError
from flux_trio.formats.meanings import Last

FluidForm = Literal["dec", "hex", "dothex", "kvs", "f58", "f58plain", "words"]
"""`kvs` is `job.` plus dothex, the job's KVS directory; `f58plain` begins with an ASCII f."""

LOST_AND_FOUND: Final = "job-lost+found"
"""The KVS directory that receives damaged jobs, each under its dothex id; as in flux-core."""

EVENTLOG: Final = "eventlog"
"""The key of a job's eventlog in the job's KVS directory (RFC 16), for `job_key`."""

FLUID_MAX: Final = (1 << 64) - 1
GENERATORS_MAX: Final = 1 << 14

_TIMESTAMP_BITS = 40
FLUID_SPAN_S: Final = (1 << _TIMESTAMP_BITS) // 1000
"""How long after its epoch a generator can make ids: 34.8 years."""

_SEQUENCE_BITS = 10
_GENERATOR_BITS = 14
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE58_VALUE = {digit: value for value, digit in enumerate(_BASE58)}
_DOTHEX = re.compile(r"(?:job\.)?[0-9a-fA-F]{4}(?:\.[0-9a-fA-F]{4}){3}")
_JOB_KEY = re.compile(r"(job(?:\.[0-9a-f]{4}){4})\.")
_HEX = re.compile("0x[0-9a-fA-F]{1,16}")
_F58 = re.compile(f"[ƒf][{_BASE58}]{{1,11}}")  # 58**11 > 2**64
_DECIMAL = re.compile("[0-9]{1,20}")
_WORD_GROUP = "[A-Za-z]{3,7}-+[A-Za-z]{3,7}-+[A-Za-z]{3,7}"  # 32 bits, the lower ones first
_WORDS = re.compile(f"{_WORD_GROUP}-+{_WORD_GROUP}")
_EMOJI = re.compile("[\U0001f000-\U0001ffff]")  # their UTF-8 begins with the bytes F0 9F


def parse_fluid(text: object) -> int:
    """Return the id, trying the forms in the RFC's order; raise FormatError.

    Blanks around the text are ignored. `job.` before dothex is accepted, so a KVS path can be
    pasted.
    """
    if not isinstance(text, str):
        raise FormatError("a job id as a string", text)
    word = text.strip()
    if "." in word:
        if not _DOTHEX.fullmatch(word):
            raise FormatError("a dothex job id such as 0017.e9fb.8df1.6c2e", text)
        return int(word.removeprefix("job.").replace(".", ""), 16)
    if "-" in word:
        return _words_value(word, text)
    if word.startswith(("ƒ", "f")):
        if not _F58.fullmatch(word):
            raise FormatError("an F58 job id such as ƒuZZybuNNy", text)
        return _bounded(_base58_value(word[1:]), text)
    if _EMOJI.match(word):
        raise FormatError("a job id (the emoji form is not supported)", text)
    if word.startswith("0x"):
        if not _HEX.fullmatch(word):
            raise FormatError("a hexadecimal job id such as 0x17e9fb8df16c2e", text)
        return int(word, 16)
    if not _DECIMAL.fullmatch(word):
        raise FormatError("a job id such as ƒuZZybuNNy, 6731191091817518 or 0x17e9fb8df16c2e", text)
    return _bounded(int(word), text)


def format_fluid(value: int, form: FluidForm) -> str:
    """Return the job id in one form; FormatError outside 0..2**64-1."""
    return _spelled(value, form)


def job_key(jobid: int, name: str) -> str:
    """Return the KVS key of `name` of a job (RFC 16); FormatError outside 0..2**64-1."""
    try:
        # by hand and not kept: with many jobs a cache would only be filled and emptied
        return f"job.{jobid.to_bytes(8).hex('.', 2)}.{name}"
    except OverflowError:
        return f"job.{_dothex(_bounded(jobid, jobid))}.{name}"


def job_directory_of(key: str) -> str | None:
    """Return the job directory that contains a KVS key, `job.<dothex>`; None for other keys."""
    found = _JOB_KEY.match(key)
    return found[1] if found else None


@lru_cache(maxsize=4096)
def _spelled(value: int, form: FluidForm) -> str:
    _bounded(value, value)
    match form:
        case "dec":
            return str(value)
        case "hex":
            return f"0x{value:x}"
        case "dothex":
            return _dothex(value)
        case "kvs":
            return f"job.{_dothex(value)}"
        case "f58":
            return f"ƒ{_base58(value)}"
        case "f58plain":
            return f"f{_base58(value)}"
        case "words":
            return _words(value)
        case _:
            assert_never(form)


class FluidGenerator:
    """Makes strictly ascending ids, at any rate and even if the clock goes back.

    `generator_id` is below GENERATORS_MAX. `start_ms` is the epoch of the timestamps, in
    milliseconds on the clock that `next` is given. When the sequence numbers of one millisecond are
    used up, the generator takes those of the following milliseconds.
    """

    __slots__ = ("_generator_id", "_start_ms", "_tick")

    _generator_id: int
    _start_ms: Last
    _tick: Last

    def __init__(self, generator_id: int = 0, start_ms: int = 0) -> None:
        if not 0 <= generator_id < GENERATORS_MAX:
            raise FormatError(f"a generator id from 0 to {GENERATORS_MAX - 1}", generator_id)
        self._generator_id = generator_id
        self._start_ms = start_ms
        self._tick = -1  # timestamp and sequence number of the last id, in one number

    def next(self, now_ms: int) -> int:
        """Return an id larger than all before it; OverflowError 34.8 years after the epoch."""
        tick = max((now_ms - self._start_ms) << _SEQUENCE_BITS, self._tick + 1)
        if tick.bit_length() > _TIMESTAMP_BITS + _SEQUENCE_BITS:
            raise OverflowError(f"{now_ms} ms is too far from the epoch, {self._start_ms} ms")
        self._tick = tick
        timestamp, sequence = divmod(tick, 1 << _SEQUENCE_BITS)
        upper = timestamp << _GENERATOR_BITS | self._generator_id
        return upper << _SEQUENCE_BITS | sequence

    def advance_past(self, fluid: int) -> None:
        """Make all later ids larger than `fluid`, the last id of an earlier run."""
        timestamp = timestamp_of(fluid)
        sequence = fluid & ((1 << _SEQUENCE_BITS) - 1)
        self._tick = max(self._tick, timestamp << _SEQUENCE_BITS | sequence)


def timestamp_of(fluid: int) -> int:
    """Return when a job id was made, in milliseconds since its generator's epoch."""
    return fluid >> (_GENERATOR_BITS + _SEQUENCE_BITS)


def _bounded(value: int, got: object) -> int:
    if not 0 <= value <= FLUID_MAX:
        raise FormatError("a job id of 64 bits", got)
    return value


def _dothex(value: int) -> str:
    return value.to_bytes(8).hex(".", 2)


def _base58(value: int) -> str:
    digits = ""
    while value or not digits:
        value, digit = divmod(value, 58)
        digits = _BASE58[digit] + digits
    return digits


def _base58_value(digits: str) -> int:
    value = 0
    for digit in digits:
        value = value * 58 + _BASE58_VALUE[digit]
    return value


def _words(value: int) -> str:
    from mnemonicode import mnformat  # imported here: its word list loads slowly

    return mnformat(value.to_bytes(8, "little"))


def _words_value(word: str, got: object) -> int:
    from mnemonicode import mndecode

    if _WORDS.fullmatch(word):
        one, two, three, four, five, six = re.findall("[a-z]+", word.lower())
        try:
            halves = [mndecode(iter([group])) for group in ((one, two, three), (four, five, six))]
        except ValueError:  # a word outside the list
            halves = []
        if [len(half) for half in halves] == [4, 4]:  # three words can also be 3 bytes, or over 4
            return int.from_bytes(b"".join(halves), "little")
    raise FormatError("a job id in words such as reform-remote-galileo--heart-package-academy", got)
