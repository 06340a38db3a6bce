"""Edits, and giving functions that are there the code of an edited text, in this process alone."""

from __future__ import annotations

import gc
import linecache
from collections.abc import Callable, Iterable, Iterator
from inspect import CO_OPTIMIZED
from types import CodeType, FunctionType
from typing import TypeAlias

import msgspec

from tests.planter.findings import ROOT

Functions: TypeAlias = dict[tuple[str, str, int], list[FunctionType]]
"""By file, name and line of their code."""


class Unplantable(Exception):
    """More than bodies of functions is changed."""


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change of a file: `old`, which is there exactly once, becomes `new`."""

    file: str
    old: str
    new: str


def edited(edits: Iterable[Edit]) -> dict[str, str]:
    """Return the text of each changed file, by its path from the root.

    Raises ValueError for an edit whose old text is not there exactly once.
    """
    texts: dict[str, str] = {}
    for edit in edits:
        text = texts.get(edit.file) or (ROOT / edit.file).read_text(encoding="utf-8")
        count = text.count(edit.old)
        if count != 1:
            raise ValueError(f"{edit.file} has {count} times, not once: {edit.old.strip()[:60]!r}")
        texts[edit.file] = text.replace(edit.old, edit.new)
    return texts


def plant_code(files: dict[str, str], functions: Functions) -> None:
    """Give functions the code of the edited texts. Raises Unplantable."""
    for file, text in files.items():
        for old, new in changed_in(file, text):
            found = functions.get(_key(old), [])
            if not found and "<locals>" not in old.co_qualname:
                raise Unplantable(f"{file}: {old.co_qualname} is not imported")
            if found and old.co_freevars != new.co_freevars:
                raise Unplantable(f"{file}: {old.co_qualname} uses other names from around it")
            for each in found:
                each.__code__ = new
        path = str(ROOT / file)  # tracebacks have its lines, and tests that read the source
        linecache.cache[path] = len(text), None, text.splitlines(keepends=True), path


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
    is_function = old.co_flags & CO_OPTIMIZED  # no module and no body of a class
    if is_function:
        yield old, new
    if _plain(old, _name) == _plain(new, _name):
        for pair in zip(_codes_in(old), _codes_in(new), strict=True):
            yield from _changed(*pair)  # of those in a function, some may have been made
    elif not is_function:
        raise Unplantable(f"{old.co_filename}: more than bodies of functions is changed")


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
