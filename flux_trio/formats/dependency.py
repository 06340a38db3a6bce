"""Dependencies as users type them (RFC 26, on command line): `scheme:value[?key=val[&key=val]]`.

The jobspec carries the object form, and its parser checks it. The meaning of the value and the keys
is left to each scheme.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from flux_trio.formats.errors import FormatError
from flux_trio.formats.fields import Object

_URI: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)(?::(?P<value>[^?]*)(?:\?(?P<query>.*))?)?"
)


def parse_dependency_uri(uri: str) -> Object:
    """Return the object form: `scheme`, `value` and the keys of the query; raise FormatError.

    A scheme alone gets the value "". In the query, `&` and `;` separate pairs, escapes are decoded,
    a value that is a JSON number becomes a number, and a repeated key gets a list of its values.
    """
    match = _URI.fullmatch(uri)
    if match is None:
        raise FormatError("a dependency such as afterok:JOBID or SCHEME:VALUE?key=val", uri)
    dependency: Object = {"scheme": match["scheme"], "value": match["value"] or ""}
    values: dict[str, list[object]] = {}
    for key, value in _read_query(match["query"] or "", uri):
        values.setdefault(key, []).append(_number_or_text(value))
    for key, several in values.items():
        if key in dependency:
            raise FormatError(f"{key} before the question mark only", uri)
        dependency[key] = several if len(several) > 1 else several[0]
    return dependency


def _read_query(query: str, uri: str) -> list[tuple[str, str]]:
    if not query:
        return []
    try:
        return parse_qsl(query.replace(";", "&"), keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise FormatError("key=val pairs separated by & after the ?", uri) from None


def _number_or_text(text: str) -> object:
    try:
        return msgspec.json.decode(text, type=int | float)
    except msgspec.DecodeError:
        return text
