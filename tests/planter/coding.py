"""Gives functions that are there the code of an edited text, in this process alone."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from inspect import CO_OPTIMIZED
from types import CodeType, FunctionType
from typing import TypeAlias

from tests.planter.findings import ROOT

Functions: TypeAlias = dict[tuple[str, str, int], list[FunctionType]]
"""By file, name and line of their code."""


class Unplantable(Exception):
    """More than bodies of functions is changed."""


def plant_code(files: dict[str, str], functions: Functions) -> None:
    """Give functions the code of the edited texts. Raises Unplantable."""
    for file, text in files.items():
        for old, new in changed_in(file, text):
            found = functions.get(_key(old), [])
            if not found or old.co_freevars != new.co_freevars:
                raise Unplantable
            for each in found:
                each.__code__ = new


def changed_in(file: str, text: str) -> list[tuple[CodeType, CodeType]]:
    """The code of each function whose body is changed, and its new code. Raises Unplantable."""
    path = ROOT / file
    old, new = (
        compile(each, str(path), "exec", dont_inherit=True)
        for each in (path.read_text(encoding="utf-8"), text)
    )
    return list(_changed(old, new))


def _changed(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    if _plain(old) == _plain(new):
        return
    if old.co_flags & CO_OPTIMIZED:  # no module and no body of a class
        yield old, new
    elif _plain(old, _name) == _plain(new, _name):
        for pair in zip(_codes_in(old), _codes_in(new), strict=True):
            yield from _changed(*pair)
    else:
        raise Unplantable


def _codes_in(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _plain(code: CodeType, inner: Callable[..., object] | None = None) -> CodeType:
    """The code without its lines, since those of later functions move."""
    inner = inner or _plain
    consts = [inner(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    return code.replace(co_firstlineno=1, co_linetable=b"", co_consts=tuple(consts))


def _name(code: CodeType) -> str:
    return code.co_qualname


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def functions_now() -> Functions:
    """All functions that there are, by the place of their code."""
    gc.unfreeze()  # what is frozen is not among the objects
    found: Functions = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            found.setdefault(_key(each.__code__), []).append(each)
    return found
