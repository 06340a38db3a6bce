"""Finds where source text names a payload's key: in a dictionary, a look-up, a test or a struct."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import msgspec

from flux_trio.editions import Codec

LOOK_UPS = ("get", "pop", "setdefault")
SENDERS = ("respond", "respond_stream", "Request", "Response", "EventMessage", "ask", "call")
CONVERTERS = ("expect_payload", "convert", "decode", "asdict", "to_builtins", "Decoder", "codec")


def keys_of(modules: Iterable[ModuleType]) -> frozenset[str]:
    """The keys of all structs that the modules define."""
    return frozenset(
        field.encode_name
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
        if value.__module__ == module.__name__
        for field in msgspec.structs.fields(value)
    )


def named_keys(source: str, keys: frozenset[str], constants: Mapping[str, set[str]]) -> list[str]:
    """Each place in `source` that names one of `keys`, as `line: key`.

    `constants` has the constants that `source` may import, with their texts. What a trace is told,
    by a Note or by an entry of `notes`, is not a payload; nor is a struct that is an array in JSON.
    """
    tree = ast.parse(source)
    told = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _is_for_trace(node.func)
        for inner in ast.walk(node)
    }
    payloads = _payload_classes(tree)
    known = {name: set(texts) for name, texts in constants.items()}
    for name, text in _named_texts(tree):
        known.setdefault(name, set()).add(text)
    return [
        f"{getattr(node, 'lineno', 0)}: {text}"
        for node in ast.walk(tree)
        if id(node) not in told
        for text in _texts(node, known, payloads)
        if text in keys
    ]


def codecs_named(source: str, modules: Iterable[ModuleType]) -> list[str]:
    """The codecs of the modules that `source` names, as `module.CODEC`."""
    codecs = {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, Codec)
    }
    named = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                named.append(f"{module}.{name}")
            case ast.ImportFrom(module=str(path), names=names):
                named += [f"{path.rpartition('.')[2]}.{each.name}" for each in names]
    return sorted(codecs.intersection(named))


def constants_in(paths: Iterable[Path]) -> dict[str, set[str]]:
    """The constants of the modules that are texts: each name with its texts in all modules."""
    found: dict[str, set[str]] = {}
    for path in paths:
        for name, text in _named_texts(ast.parse(path.read_text())):
            if name.isupper():
                found.setdefault(name, set()).add(text)
    return found


def _named_texts(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that a module gives to texts, local ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            names, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            names, value = [node.target], node.value
        else:
            continue
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield from ((each.id, value.value) for each in names if isinstance(each, ast.Name))


def payloads_by_hand(source: str) -> list[str]:
    """Each place in `source` that reads or writes a payload without an edition's type."""
    tree = ast.parse(source)
    made = set(_named_dictionaries(tree))
    return [
        f"{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if _is_by_hand(node, made)
    ]


def _is_by_hand(node: ast.AST, made: set[str]) -> bool:
    match node:
        case ast.Name(id="expect_payload") | ast.Attribute(attr="payload"):
            return True
        case ast.Call(func=func, args=args) if _name(func) in SENDERS:
            return any(_is_dictionary(each) or _name(each) in made for each in args)
    return False


def _named_dictionaries(tree: ast.AST) -> Iterator[str]:
    """The local names that are given a dictionary with keys."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_dictionary(value):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict() as value) if value.keys:
                yield name


def _is_dictionary(node: ast.expr) -> bool:
    return isinstance(node, ast.Dict) and bool(node.keys)


def _is_for_trace(function: ast.expr) -> bool:
    match function:
        case ast.Attribute(value=ast.Attribute(attr="notes"), attr="append"):
            return True
    return _name(function) == "Note"


def _payload_classes(tree: ast.AST) -> set[str]:
    """The classes that a payload is made of or becomes, and those of their fields."""
    found = {
        inner.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _name(node.func) in CONVERTERS
        for given in [*node.args, *(keyword.value for keyword in node.keywords)]
        for inner in ast.walk(given)
        if isinstance(inner, ast.Name)
    }
    classes = {
        node.name: node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not _is_array(node)
    }
    found &= classes.keys()
    waiting = list(found)
    while waiting:
        for inner in ast.walk(classes[waiting.pop()]):
            if isinstance(inner, ast.Name) and inner.id in classes and inner.id not in found:
                found.add(inner.id)
                waiting.append(inner.id)
    return found


def _texts(node: ast.AST, constants: Mapping[str, set[str]], payloads: set[str]) -> Iterator[str]:
    """What a node uses as a key."""
    if isinstance(node, ast.ClassDef) and (node.name in payloads or _has_base(node, "TypedDict")):
        yield from _fields(node)
    for each in _expressions(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value
        elif isinstance(each, (ast.Name, ast.Attribute)):
            yield from constants.get(_name(each), ())


def _expressions(node: ast.AST) -> list[ast.expr | None]:
    match node:
        case ast.Dict() | ast.MatchMapping():
            return [*node.keys]
        case ast.Subscript():
            return [node.slice]
        case ast.Call(func=ast.Attribute(attr=name), args=[first, *_]) if name in LOOK_UPS:
            return [first]
        case ast.Call(func=ast.Name(id="dict")):
            return [ast.Constant(keyword.arg) for keyword in node.keywords]
        case ast.Call(func=ast.Name(id="getattr"), args=[_, name, *_]):
            return [name]
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn(), *_]):
            return [left]
    return []


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """The keys of a class whose fields are keys."""
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield _wire_name(line.value) or line.target.id


def _is_array(node: ast.ClassDef) -> bool:
    return any(each.arg == "array_like" for each in node.keywords)


def _has_base(node: ast.ClassDef, base: str) -> bool:
    return any(_name(each) == base for each in node.bases)


def _wire_name(value: ast.expr | None) -> str | None:
    """The key that `msgspec.field(name=...)` gives to a field."""
    if not isinstance(value, ast.Call):
        return None
    given = [each.value for each in value.keywords if each.arg == "name"]
    return next((str(each.value) for each in given if isinstance(each, ast.Constant)), None)


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _name(value)
    return ""
