"""RFC 29 hostlists: ordered lists of host names, written as `node[0-3,7],login1`.

An expression has at most one bracketed id list, as in the RFC's form. Two decisions where the RFC
is silent: an id with leading zeros of its own keeps them, even if the first id of its list has no
leading zeros (`n[1,02]` is n1,n02); a descending range is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, final, overload

from flux_trio.formats.errors import FormatError

HOSTS_MAX: Final = 1 << 18
"""Maximum length of a list: more than the largest machines have; limits `n[0-999999999]`."""

_NAME_CHARS_MAX = 255  # POSIX HOST_NAME_MAX; limits the cost of a range with a long prefix

_HOSTLIST = 'a hostlist such as "node[0-3,7],login1"'
_DIGITS_MAX = 18  # of an id; more digits at the end of a host name are part of the name
_NAME = r"[!-+\--Z\\^-~]"  # printable ASCII other than blank , [ ]
_EXPRESSION = re.compile(rf"({_NAME}*)(?:\[([0-9,\-]*)\]({_NAME}*))?(?:,|\Z)")
_NAMES = re.compile(rf"(?:{_NAME}+\n)*")


class HostRange(NamedTuple):
    """The hosts `prefix`, id, `suffix` for the ids from `first` to `last`."""

    prefix: str
    first: int
    last: int
    width: int
    """Digits of an id at least: shorter ones get leading zeros; 1 without leading zeros."""
    suffix: str

    @property
    def nhosts(self) -> int:
        return self.last - self.first + 1

    def names(self) -> list[str]:
        """Return the names of all `nhosts` hosts, which may be very many."""
        prefix, suffix, run = self.prefix, self.suffix, range(self.first, self.last + 1)
        ids = map(str, run) if self.width == 1 else [str(each).zfill(self.width) for each in run]
        return f"{prefix}{f'{suffix},{prefix}'.join(ids)}{suffix}".split(",")  # faster than a loop


def host_parts(text: object, *, own_widths: bool = False) -> Iterator[str | HostRange]:
    """Yield the hosts of a hostlist as names and ranges; a part costs no more than its text.

    The zeros of the first element in brackets apply to all (29.hostlist.8); with `own_widths`, as
    in flux-core, each element has its own (readings: Hostlist widths). FormatError.
    """
    if not isinstance(text, str):
        raise FormatError(_HOSTLIST, text)
    position = 0
    while position < len(text):
        match = _EXPRESSION.match(text, position)
        if match is None:
            raise FormatError(_HOSTLIST, text[position:])
        prefix, idlist, suffix = match.groups()
        if len(prefix) + len(suffix or "") > _NAME_CHARS_MAX:
            raise FormatError(f"host names of at most {_NAME_CHARS_MAX} characters", match[0])
        if idlist is not None:
            yield from _ranges(prefix, idlist, suffix, own_widths=own_widths)
        elif prefix:  # an empty expression adds no host
            yield prefix
        position = match.end()


@final
class Hostlist(Sequence[str]):
    """An immutable list of host names; it keeps order and repetitions."""

    __slots__ = ("_hosts",)

    def __init__(self) -> None:
        self._hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, hosts: Iterable[str]) -> Hostlist:
        """Build a list of plain host names; FormatError if one has a blank, comma or bracket."""
        names = tuple(hosts)
        if not _NAMES.fullmatch("".join([f"{name}\n" for name in names])):
            bad = next(name for name in names if not re.fullmatch(f"{_NAME}+", name))
            raise FormatError("a host name of printable ASCII without blank, comma or bracket", bad)
        return _checked(names)

    @classmethod
    def parse(cls, text: object, *, own_widths: bool = False) -> Hostlist:
        """Return the hosts in the order of `text`; `own_widths` and FormatError as `host_parts`."""
        if not isinstance(text, str):
            raise FormatError(_HOSTLIST, text)
        if "[" not in text:
            return cls.of([name for name in text.split(",") if name])
        hosts: list[str] = []
        for part in host_parts(text, own_widths=own_widths):
            if isinstance(part, str):
                hosts.append(part)
            elif part.nhosts > HOSTS_MAX - len(hosts):
                raise FormatError(f"at most {HOSTS_MAX} hosts", text)
            else:
                hosts += part.names()
        return _checked(tuple(hosts))

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Hostlist: ...
    def __getitem__(self, index: int | slice) -> str | Hostlist:
        return _wrap(self._hosts[index]) if isinstance(index, slice) else self._hosts[index]

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __eq__(self, other: object) -> bool:
        return self._hosts == other._hosts if isinstance(other, Hostlist) else NotImplemented

    def __hash__(self) -> int:
        return hash((Hostlist, self._hosts))

    def __str__(self) -> str:
        if len(self._hosts) == 1:
            return self._hosts[0]
        return ",".join(_expressions(self._hosts))

    def __repr__(self) -> str:
        return f"Hostlist({str(self)!r})"


def _wrap(hosts: tuple[str, ...]) -> Hostlist:
    hostlist = Hostlist()
    hostlist._hosts = hosts
    return hostlist


def _checked(hosts: tuple[str, ...]) -> Hostlist:
    if len(hosts) > HOSTS_MAX:
        raise FormatError(f"at most {HOSTS_MAX} hosts", len(hosts))
    if max(map(len, hosts), default=0) > _NAME_CHARS_MAX:
        raise FormatError(
            f"host names of at most {_NAME_CHARS_MAX} characters", max(hosts, key=len)
        )
    return _wrap(hosts)


def _ranges(
    prefix: str, idlist: str, suffix: str, *, own_widths: bool
) -> Iterator[str | HostRange]:
    """Yield the hosts of `prefix[idlist]suffix`."""
    whole = f"{prefix}[{idlist}]{suffix}"
    width = 0
    for element in idlist.split(","):
        first, dash, last = element.partition("-")
        own_width = _width(first, whole)
        width = own_width if own_widths else width or own_width
        pad = max(width, own_width)
        if dash:
            run = _range(first, last, whole)
            yield HostRange(prefix, run.start, run.stop - 1, pad, suffix)
        else:
            yield f"{prefix}{first.zfill(pad)}{suffix}"


def _range(first: str, last: str, whole: str) -> range:
    if _width(last, whole) > 1 and len(last) != len(first):
        raise FormatError("a range whose ends are padded alike", whole)
    if int(first) > int(last):
        raise FormatError("an id list whose ranges ascend", whole)
    return range(int(first), int(last) + 1)


def _width(digits: str, whole: str = "") -> int:
    """Return the width given by leading zeros, or 1 without leading zeros."""
    if not digits.isdecimal() or len(digits) > _DIGITS_MAX:
        raise FormatError(_HOSTLIST, whole)
    return len(digits) if digits[0] == "0" else 1


def _expressions(hosts: tuple[str, ...]) -> Iterator[str]:
    """Put neighbours with the same prefix and padding into one bracket, as in `node[0-3,7]`."""
    prefix, width, elements = "", 0, list[str]()
    for run_prefix, digits, element in _runs(hosts):
        if elements and run_prefix == prefix and digits and str(int(digits)).zfill(width) == digits:
            elements.append(element)
            continue
        if elements:
            yield _bracketed(prefix, elements)
        if digits:
            prefix, width, elements = run_prefix, _width(digits), [element]
        else:
            elements = []
            yield run_prefix
    if elements:
        yield _bracketed(prefix, elements)


def _runs(hosts: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Yield runs of ascending hosts: prefix, first digits (may be ""), element such as `0-3`."""
    at = 0
    while at < len(hosts):
        prefix, digits = _split(hosts[at])
        at += 1
        if not digits:
            yield prefix, "", ""
            continue
        first, width = int(digits), _width(digits)
        last = first
        while at < len(hosts):
            following = f"{last + 1}" if width == 1 else str(last + 1).zfill(width)
            if hosts[at] != prefix + following:
                break
            last += 1
            at += 1
        yield prefix, digits, digits if last == first else f"{digits}-{str(last).zfill(width)}"


def _split(host: str) -> tuple[str, str]:
    prefix = host.rstrip("0123456789")
    digits = host[len(prefix) :]
    return (prefix, digits) if len(digits) <= _DIGITS_MAX else (host, "")


def _bracketed(prefix: str, elements: list[str]) -> str:
    only = elements[0] if len(elements) == 1 else "-"
    return f"{prefix}[{','.join(elements)}]" if "-" in only else prefix + only
