"""Write the pages of the judge: each rule's source beside the text of its clause.

`make docs` makes them anew from the code each time, so they are not in the tree.
`python -m docs.make_judge` writes them too.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import ModuleType

from flux_trio.judge import Clause, load_clauses, load_unjudged, rules

DIRECTORY = Path(__file__).parent / "reference" / "judge"
PACKAGE = rules.__package__.rpartition(".")[0]
_NOT_SHOWN = ("RULES", "__all__")  # names that a rule file sets and that say nothing of a rule
_KNOWN = {"Broken", "Facts", "Finding", "Seen"}  # every rule uses some of these


class RuleFile:
    """A file of rules as a page: its statements in order, each after the clauses it is about."""

    def __init__(self, module: ModuleType, clauses: Mapping[str, Clause]) -> None:
        self.name = module.__name__.rpartition(".")[2]
        self._module = module
        source = inspect.getsource(module)
        self._tree = ast.parse(source)
        self._lines = source.splitlines()
        self._clauses = clauses
        self._ids = {rule.clause for rule in module.RULES.all}
        self.is_other = any(rule.is_current or rule.is_routed for rule in module.RULES.all)

    def _anchor(self, id_: str) -> str:
        """The anchor of a clause; one may have other rules for other traces."""
        return _anchor(f"{self.name}.{id_}" if self.is_other else id_)

    @cached_property
    def placed(self) -> dict[str, str]:
        """By clause that a rule of this file judges: the source that is printed beside it."""
        return {id_: text for each in self._tree.body for id_, text in self._about(each).items()}

    def page(self) -> str:
        """The file as Markdown."""
        doc = inspect.getdoc(self._module) or ""
        parts = [f"# {_first_sentence(doc)}", "", _rest(doc), ""]
        for statement in filter(_is_shown, self._tree.body):
            about = self._about(statement)
            for id_, text in about.items():
                parts += [*_clause(id_, self._clauses.get(id_), self._anchor(id_)), ""]
                parts += [*_code(text), ""] if text != self._text(statement) else []
            parts += [*_code(self._text(statement)), ""]
            parts += [*self._links(statement), ""] if about else []
        return _tidied(parts)

    def _about(self, statement: ast.stmt) -> dict[str, str]:
        """The clauses of the rules that a statement makes, and the source that says what they are.

        A statement names its clauses, or goes through a table of functions by clause.
        """
        match statement:
            case ast.For(iter=ast.Name(id=name)):
                table = getattr(self._module, name)
                return {id_: inspect.getsource(table[id_]) for id_ in table if id_ in self._ids}
            case ast.Assign() | ast.AnnAssign():
                return {}
        named = [each.value for each in ast.walk(statement) if isinstance(each, ast.Constant)]
        found = [each for each in named if isinstance(each, str) and each in self._ids]
        return dict.fromkeys(found, self._text(statement))

    def _text(self, statement: ast.stmt) -> str:
        """The source of a statement with its decorators, and the comments right above it."""
        decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(each.lineno for each in decorators)])
        while first > 1 and self._lines[first - 2].startswith("#"):
            first -= 1
        return "\n".join(self._lines[first - 1 : statement.end_lineno])

    @cached_property
    def _imported(self) -> dict[str, str]:
        """Names that come from other files of the judge, and the page of each."""
        return {
            alias.asname or alias.name: page
            for each in self._tree.body
            if isinstance(each, ast.ImportFrom)
            for alias in each.names
            if (page := _page_of(_file_of(each.module or "", alias.name)))
        }

    def _links(self, statement: ast.stmt) -> Iterator[str]:
        """Where the names are defined that a statement uses."""
        names = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
        used: dict[str, list[str]] = {}
        for name in sorted(names & self._imported.keys() - _KNOWN):
            used.setdefault(self._imported[name], []).append(f"`{name}`")
        links = [f"{', '.join(names)} of [{page}]({page}.md)" for page, names in used.items()]
        if links:
            yield f"Uses {'; '.join(links)}."


def rule_files() -> list[RuleFile]:
    """Every file of rules, by name."""
    clauses = load_clauses()
    names = sorted(module.name for module in pkgutil.iter_modules(rules.__path__))
    modules = [importlib.import_module(f"{rules.__name__}.{name}") for name in names]
    return [RuleFile(module, clauses) for module in modules]


def pages() -> dict[str, str]:
    """What each file holds, by its name."""
    files = rule_files()
    found = {f"{each.name}.md": each.page() for each in files}
    found |= {f"{_page_of(each.__name__)}.md": _source_page(each) for each in _shared()}
    return found | {"index.md": _index(files, found)}


def write() -> None:
    """Write all pages; those of files that are gone are removed."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    made = pages()
    for old in DIRECTORY.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        path = DIRECTORY / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _index(files: Iterable[RuleFile], found: Mapping[str, str]) -> str:
    names = [name.removesuffix(".md") for name in found]
    classic = [each for each in files if not each.is_other]
    where = {id_: each.name for each in classic for id_ in each.placed}
    reasons, clauses = load_unjudged(), load_clauses()
    judged = [f"- [{id_}]({where[id_]}.md#{_anchor(id_)})" for id_ in clauses if id_ in where]
    more = [f"- [{id_}]({where[id_]}.md#{_anchor(id_)})" for id_ in where if id_ not in clauses]
    lines = [
        "# The judge, rule by rule",
        "",
        "Each rule of the judge beside the clause that it judges, so that a reader can compare the",
        "two. The pages are made from the code and from `clauses.toml`. What a rule uses is on the",
        "same page, or on the page that is named below the rule.",
        "",
        "```{toctree}",
        ":maxdepth: 1",
        "",
        *names,
        "```",
        "",
        f"## Clauses that a rule judges: {len(judged)}",
        "",
        *judged,
        "",
        f"## Invariants, which no clause states: {len(more)}",
        "",
        *more,
        "",
        f"## Clauses that a trace cannot show, and why: {len(reasons)}",
        "",
    ]
    for id_, reason in reasons.items():
        lines += [*_quote(clauses[id_]), "", reason, ""]
    return "\n".join(lines)


def _shared() -> list[ModuleType]:
    """The files of the judge that are not rule files: views, what a rule is, how it is asked."""
    top = importlib.import_module(PACKAGE)
    below = pkgutil.walk_packages(top.__path__, f"{PACKAGE}.")
    names = [each.name for each in below if not each.ispkg]
    is_rule = f"{rules.__name__}."
    return [importlib.import_module(name) for name in names if not name.startswith(is_rule)]


def _source_page(module: ModuleType) -> str:
    doc = inspect.getdoc(module) or module.__name__
    code = "\n".join(_code(inspect.getsource(module)))
    return f"# {_first_sentence(doc)}\n\n{_rest(doc)}\n\n{code}\n"


def _file_of(package: str, name: str) -> str:
    """The module that `from package import name` reads."""
    return whole if (whole := f"{package}.{name}") in sys.modules else package


def _page_of(module: str) -> str:
    """The page of a file of the judge; "" for other files."""
    for above in (rules.__name__, PACKAGE):
        if module.startswith(f"{above}."):
            return module.removeprefix(f"{above}.")
    return ""


def _clause(id_: str, clause: Clause | None, anchor: str) -> Iterator[str]:
    yield f"({anchor})="
    yield f"## {id_}"
    yield ""
    if clause is None:
        yield "No clause states this: what it says is in the rule's own words."
    else:
        yield from _quote(clause)


def _quote(clause: Clause) -> Iterator[str]:
    who = f"{clause.level}, {clause.actor}"
    who += f"; broken by {clause.violator}" if clause.violator else ""
    who += f"; {clause.newest} in the newest edition" if clause.newest else ""
    yield f"> **{clause.id}** ({who}; {clause.section}, {clause.src})"
    yield f"> {_escaped(clause.text)}"
    yield ">"
    yield f"> *When:* {_escaped(clause.trigger)}. *Broken when:* {_escaped(clause.violation)}."
    if clause.note:
        yield ">"
        yield f"> *Read as:* {_escaped(clause.note)}"


def _is_shown(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom():
            return False
        case ast.AnnAssign(target=ast.Name(id=name)):
            return name not in _NOT_SHOWN
        case ast.Expr(value=ast.Constant()):
            return bool(statement.lineno > 1)  # what it says of the statement before it
    return True


def _tidied(parts: Iterable[str]) -> str:
    """Lines as one text, in which statements that follow each other are in one block."""
    text = re.sub("\n{3,}", "\n\n", "\n".join(parts))
    return text.replace("\n```\n\n```python\n", "\n\n").strip() + "\n"


def _code(text: str) -> list[str]:
    return ["```python", text.rstrip(), "```"]


def _escaped(text: str) -> str:
    """Text in which Markdown sees nothing of its own."""
    return re.sub(r"([\\`*_{}\[\]<>#|$])", r"\\\1", text)


def _anchor(id_: str) -> str:
    return re.sub("[^a-z0-9]+", "-", id_.lower())


def _first_sentence(doc: str) -> str:
    first = " ".join(doc.partition("\n\n")[0].split())
    return first.rstrip(".")


def _rest(doc: str) -> str:
    return doc.partition("\n\n")[2]


if __name__ == "__main__":
    write()
