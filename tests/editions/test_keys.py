"""Editions hold every key: cores and services name none of a payload that an RFC describes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

import flux_trio
from flux_trio.editions import Codec, rfc21, rfc24, rfc27, rfc28, rfc32, rfc33

LOOK_UPS = ("get", "pop", "setdefault")
SENDERS = ("respond", "respond_stream", "Request", "Response", "EventMessage", "ask", "call")
CONVERTERS = (
    "expect_payload",
    "convert",
    "converted",
    "decode",
    "asdict",
    "to_builtins",
    "Decoder",
    "codec",
)


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


ROOT = Path(flux_trio.__file__).parent
JOBSPEC = "attributes of a jobspec (RFC 14, 25), which is a format and no payload"
RESOURCE_LOG = "contexts of the resource eventlog in the kvs, which none of these RFCs describes"
TURNS = "turns of cores in a trace, which is a format of our own"
OTHER_FORMATS = {
    "cores/exec/simulation.py": ({"wait_status"}, JOBSPEC),
    "cores/exec/tasks.py": ({"data", "encoding", "mode", "path", "type"}, JOBSPEC),
    "cores/ingest/feasibility.py": ({"resources"}, JOBSPEC),
    "cores/exec/templates.py": ({"name"}, "tags that a user may put into a command"),
    "cores/job_list/constraint.py": (
        {"pending", "ranks", "userid"},
        "operators of flux-core's constraint of a list, which none of these RFCs describes",
    ),
    "cores/job_list/changes.py": ({"priority"}, "the state, of which the statistics have a number"),
    "cores/job_list/records.py": ({"priority"}, "the state, of which a row has the time"),
    "cores/job_index.py": ({"name"}, JOBSPEC),
    "cores/job_manager/jobs/jobspecs.py": ({"queue"}, JOBSPEC),
    "cores/turn_records.py": ({"version"}, TURNS),
    "cores/recorded_plugins.py": ({"priority"}, TURNS),
    "cores/resource/core.py": ({"expiration", "reason"}, RESOURCE_LOG),
    "cores/resource/downs.py": ({"reason"}, RESOURCE_LOG),
    "cores/resource/administration.py": ({"reason"}, RESOURCE_LOG),
    "cores/resource/journal.py": ({"R", "online", "ranks"}, RESOURCE_LOG),
    "services/recorded_core.py": ({"version"}, TURNS),
}
KEYS = keys_of([rfc21, rfc24, rfc27, rfc28, rfc32, rfc33])
FILES = {
    str(path.relative_to(ROOT)): path.read_text()
    for package in ("cores", "services")
    for path in sorted((ROOT / package).glob("**/*.py"))
}
ALL_FILES = pytest.mark.parametrize("name", FILES)


@pytest.fixture(scope="module")
def constants() -> dict[str, set[str]]:
    """Those of all rooms, from any of which a constant may be imported."""
    return constants_in(ROOT.rglob("*.py"))


@ALL_FILES
def test_nobody_names_a_payload_key(name: str, constants: dict[str, set[str]]) -> None:
    others, _reason = OTHER_FORMATS.get(name, (set(), ""))
    named = {each.partition(": ")[2] for each in named_keys(FILES[name], KEYS, constants)}
    assert named == others


@ALL_FILES
def test_every_payload_is_of_a_type_of_editions(name: str) -> None:
    assert payloads_by_hand(FILES[name]) == []


@ALL_FILES
def test_what_editions_differ_in_is_asked_of_an_edition(name: str) -> None:
    """A core that named one of the codecs itself would speak one edition only."""
    assert codecs_named(FILES[name], [rfc27, rfc28, rfc32]) == []


def test_a_codec_that_is_named_is_found() -> None:
    source = "from flux_trio.editions.rfc27 import ALLOC, Alloc\nrfc28.ACQUIRE.write(each)"
    assert codecs_named(source, [rfc27, rfc28]) == ["rfc27.ALLOC", "rfc28.ACQUIRE"]


@pytest.mark.parametrize(
    "source",
    [
        "expect_payload(request, Named)",
        "jobid = request.payload",
        'respond(request, {"count": 1})',
        'self._outbox.ask(topics.KVS_COMMIT, {"ops": ops}, Stored())',
        'payload = {"count": 1}\nrespond(request, payload)',
        'payload: Payload = {"count": 1}\nrespond(request, payload)',
    ],
)
def test_a_payload_that_is_read_or_written_by_hand_is_found(source: str) -> None:
    assert payloads_by_hand(source) != []


def test_keys_of_the_rfcs_are_known() -> None:
    assert {"id", "t_submit", "partial-ok", "R", "targets", "shrink", "reattach"} <= KEYS


@pytest.mark.parametrize(
    "source",
    [
        'payload = {"id": 1}',
        "payload = {ID: 1}",
        "payload = dict(id=1)",
        'jobid = payload["id"]',
        "jobid = payload[ID]",
        'jobid = payload.get("id", 0)',
        'named = "id" in payload',
        'jobid = getattr(payload, "id")',
        "class Named(msgspec.Struct):\n    id: int\nexpect_payload(request, Named)",
        'class Named(Struct):\n    job: int = field(name="id")\nmsgspec.convert({}, list[Named])',
        "class Named(Struct):\n    id: int\nconverted({}, Named)",
        "class In(Struct):\n    id: int\nclass Out(Struct):\n    x: In\nasdict(Out(In(1)))",
        "class Named(TypedDict):\n    id: int",
        'match payload:\n    case {"id": jobid}: pass',
    ],
)
def test_a_key_that_is_named_is_found(source: str) -> None:
    assert len(named_keys(source, KEYS, {"ID": {"id"}})) == 1


def test_a_key_in_a_constant_of_another_room_is_found(constants: dict[str, set[str]]) -> None:
    source = "from flux_trio.editions.journal import ANNOTATIONS\nfound = payload[ANNOTATIONS]"
    assert named_keys(source, KEYS, constants) == ["2: annotations"]


@pytest.mark.parametrize(
    "source",
    [
        "class Call(msgspec.Struct):\n    id: int",
        'key = job_key(1, "R")',
        'Note(kind, {"id": 1})',
        'self.notes.append((kind, {"id": 1}))',
        "class Row(Struct, array_like=True):\n    id: int\nDecoder(Row)",
        "jobid = free.id",
        'text = "id"',
    ],
)
def test_what_is_no_payload_may_use_the_word(source: str) -> None:
    assert named_keys(source, KEYS, {}) == []
