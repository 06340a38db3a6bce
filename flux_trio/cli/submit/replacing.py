"""Replacement of `{}` in commands and options of jobs submitted in bulk (flux-bulksubmit(1)).

This is Python's `str.format` with the inputs by position, and `seq`, `seq1` and `cc` by name. An
input has the methods `.%` (no extension), `./` (base name), `.//` (directory), `./%` (base name, no
extension), and those of --define. `{{...}}` is left for the job shell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, Final

from flux_trio.cli.submit.submission import Submission

# Marks for texts that `str.format` must not see; a word of a command line never contains NUL.
_OPEN, _CLOSE, _LIST = "\0<", "\0>", "\0,"

# Errors that a user's expression may raise for an input.
_MISTAKES: Final = (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError)

_PARTS: Final[Mapping[str, Callable[[str], str]]] = {
    "%": lambda text: text.removesuffix(Path(text).suffix),
    "/": lambda text: text.rpartition("/")[2],
    "//": lambda text: text.rpartition("/")[0],
    "/%": lambda text: text.rpartition("/")[2].removesuffix(Path(text).suffix),
}


def compile_methods(definitions: Sequence[str]) -> dict[str, CodeType]:
    """Compile the methods of --define, by name. Raises ValueError if a word is not NAME=CODE."""
    methods = {}
    for definition in definitions:
        name, equals, code = definition.partition("=")
        if not equals:
            raise ValueError(f"--define: expected NAME=CODE, got {definition!r}")
        try:
            methods[name] = compile(code, name, "eval")
        except SyntaxError as error:
            raise ValueError(f"--define: {name}: {error.msg}") from None
    return methods


class Input:
    """One input of a job, as `str.format` sees it."""

    def __init__(self, text: str, methods: Mapping[str, CodeType]) -> None:
        self._text = text
        self._methods = methods

    def __str__(self) -> str:
        return self._text

    def __format__(self, spec: str) -> str:
        return format(self._text, spec)

    def __getattr__(self, name: str) -> object:
        if name in _PARTS:
            return _PARTS[name](self._text)
        if name not in self._methods:
            raise ValueError(f"Unknown input string method '.{name}'")
        try:  # the user's own code, on the user's own command line
            result = eval(self._methods[name], {"x": self._text})
        except _MISTAKES as error:
            kind = type(error).__name__
            raise ValueError(f"--define: {name} of {self._text!r}: {kind}: {error}") from None
        return _LIST.join(map(str, result)) if isinstance(result, list) else result


def replaced(
    submission: Submission, inputs: Sequence[Input], names: Mapping[str, Any]
) -> Submission:
    """Return the submission with braces replaced by inputs and names.

    A list that a method returns becomes several words of the command. The ValueError names the text
    whose braces have no input or name.
    """

    def change(field: str, text: str) -> list[str]:
        marked = text.replace("{{", _OPEN).replace("}}", _CLOSE)
        try:
            made = marked.format(*inputs, **names)
        except (IndexError, KeyError):
            what = "command" if field == "command" else f"--{field.replace('_', '-')}"
            raise ValueError(f"Invalid replacement string in {what}: '{text}'") from None
        restored = made.replace(_OPEN, "{{").replace(_CLOSE, "}}")
        return restored.split(_LIST)

    return submission.with_texts(change)
