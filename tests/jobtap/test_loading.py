"""Finding plugins: by file, by name on a search path, by entry point."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flux_trio
from flux_trio import jobtap
from flux_trio.jobtap import Loader, Plugin, PluginError, load_file, search_path
from flux_trio.jobtap.loaded import ModulePlugin, read_handlers

CLASS = """
from dataclasses import dataclass
from flux_trio import jobtap

@dataclass
class Note:
    text: str

class _Base(jobtap.Plugin):
    pass

class Hold(_Base):
    @jobtap.on("job.validate")
    def validate(self, job): pass
"""
MODULE = """
from flux_trio import jobtap
import {beside}

@jobtap.on("job.validate")
def validate(job): raise jobtap.Reject({beside}.REASON)
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


def problem(path: Path) -> str:
    with pytest.raises(PluginError) as caught:
        load_file(path)
    return str(caught.value)


# --- files


def test_class_of_a_file_is_the_plugin_named_by_the_file(write: Any) -> None:
    plugin = load_file(write("hold_until.py", CLASS))
    assert plugin.name == "hold-until"
    assert [topic for topic, _ in read_handlers(plugin).topics] == ["job.validate"]


def test_name_that_the_class_says_stands(write: Any) -> None:
    text = CLASS.replace("class Hold(_Base):", "class Hold(_Base):\n    name = 'other'")
    assert load_file(write("hold.py", text)).name == "other"


def test_module_with_decorated_functions_is_a_plugin_and_may_import_what_is_beside_it(
    write: Any,
) -> None:
    write("beside_of_test_loading.py", "REASON = 'no'")
    before = list(sys.path)
    plugin = load_file(write("some_rules.py", MODULE.format(beside="beside_of_test_loading")))
    assert isinstance(plugin, ModulePlugin)
    assert plugin.name == "some-rules"
    ((topic, function),) = read_handlers(plugin).topics
    assert topic == "job.validate"
    with pytest.raises(jobtap.Reject, match="no"):
        function(None)
    assert sys.path == before


def test_file_is_read_anew_each_time(write: Any) -> None:
    path = write("edited.py", CLASS)
    first = load_file(path)
    path.write_text(CLASS.replace("job.validate", "job.new"))
    second = load_file(path)
    assert [topic for topic, _ in read_handlers(first).topics] == ["job.validate"]
    assert [topic for topic, _ in read_handlers(second).topics] == ["job.new"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\ny = )", r":2: SyntaxError: "),
        ("\n\nraise KeyError('bank')", r":3: KeyError: 'bank'"),
        ("import sys\nsys.exit('over')", r":2: SystemExit: over"),
        ("import nothing_of_that_name", r":1: ModuleNotFoundError: No module"),
        ("x = 1", r": expected a jobtap.Plugin, or functions with jobtap's decorators"),
        (CLASS + CLASS.replace("Hold", "Other"), r": expected one class of a plugin, got "),
        (
            "from flux_trio.jobtap import Plugin\nclass A(Plugin):\n  def __init__(self, x): ...",
            r"bad.py: TypeError: ",
        ),
    ],
)
def test_file_that_is_no_plugin_is_named_with_what_is_wrong(
    write: Any, text: str, expected: str
) -> None:
    path = write("bad.py", text)
    found = problem(path)
    assert found.startswith(str(path))
    assert expected in found


@pytest.mark.parametrize("name", ["rules", "rules.txt"])
def test_file_without_the_suffix_of_python_is_no_plugin(write: Any, name: str) -> None:
    path = write(name, CLASS)
    expected = f"no plugin {path}: expected a Python file, whose name ends in .py, got {name}"
    assert problem(path) == expected


def test_file_that_is_no_text_is_no_python_source(tmp_path: Path) -> None:
    path = tmp_path / "binary.py"
    path.write_bytes(b"\xff\xfe\x00")
    assert re.fullmatch(
        rf"{path}: expected Python source: \w+Error: source code string cannot contain null bytes",
        problem(path),
    )


def test_error_of_syntax_in_a_file_beside_names_the_line_that_imports_it(write: Any) -> None:
    write("broken_beside_of_test_loading.py", "\n\n)")
    path = write("imports.py", "import broken_beside_of_test_loading")
    assert problem(path) == (
        f"{path}:1: SyntaxError: unmatched ')' (broken_beside_of_test_loading.py, line 3)"
    )


def test_path_of_a_directory_is_no_plugin(tmp_path: Path) -> None:
    assert problem(tmp_path) == f"no plugin {tmp_path}: expected a file, got a directory"
    for what in (".", ".."):
        with pytest.raises(PluginError, match=rf"^no plugin {re.escape(what)}: expected a file"):
            Loader().find(what)
    with pytest.raises(PluginError, match=r"expected a file, got a directory$"):
        Loader().find(str(tmp_path))


@pytest.mark.parametrize("path", ["hold_until.py", "plugins/hold_until.py"])
def test_file_that_is_not_there_is_told_from_one_that_its_name_finds(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    found = write("hold_until.py", CLASS)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    loader = Loader([tmp_path])
    with pytest.raises(PluginError) as caught:
        loader.find(path)
    expected = f"no plugin {path}: there is no such file; hold-until loads {found}"
    assert str(caught.value) == expected
    assert loader.find("hold-until")[1] == str(found)


@pytest.mark.parametrize("suffix", ["", ".py"])
def test_name_that_no_file_can_have_is_an_error_that_says_so(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(PluginError, match="File name too long"):
        Loader([tmp_path]).find(f"{'x' * 300}{suffix}")


# --- names


def test_name_is_looked_for_on_the_search_path_in_order(write: Any, tmp_path: Path) -> None:
    write("one/hold_until.py", CLASS)
    write("two/hold_until.py", CLASS)
    write("two/other.py", CLASS)
    loader = Loader([tmp_path / "one", tmp_path / "two"])
    assert loader.find("hold-until")[1] == str(tmp_path / "one/hold_until.py")
    assert loader.find("other")[1] == str(tmp_path / "two/other.py")
    assert loader.find(str(tmp_path / "two/other.py"))[0].name == "other"
    with pytest.raises(PluginError) as caught:
        loader.find("nothing-such")
    assert str(caught.value) == (
        "no plugin nothing-such: looked for nothing_such.py in the entry points flux_trio.jobtap, "
        f"{tmp_path}/one, {tmp_path}/two"
    )


def test_name_of_a_file_of_flux_core_means_the_plugin_of_this_name(tmp_path: Path) -> None:
    """The administrator's guide has plugins = [{ load = "perilog.so" }]."""
    plugin, path = Loader(search_path({})).find("perilog.so")
    assert (plugin.name, Path(path).name) == ("perilog", "perilog.py")
    with pytest.raises(PluginError, match=r"^no plugin custom: looked for custom\.py in"):
        Loader().find("custom.so")
    with pytest.raises(PluginError, match="there is no such file"):
        Loader().find(str(tmp_path / "perilog.so"))


def test_builtin_that_was_removed_is_found_by_its_name() -> None:
    plugin = Plugin()
    plugin.name = ".priority"
    assert Loader([], [plugin]).find(".priority") == (plugin, "builtin")


def test_search_path_is_the_variables_then_the_instances_then_what_comes_along() -> None:
    environ = {"FLUX_TRIO_JOBTAP_PATH": "/site/one:/site/two"}
    found = search_path(environ, Path("/state"))
    assert found[:3] == [Path("/site/one"), Path("/site/two"), Path("/state/jobtap")]
    assert search_path({}) == found[3:]
    of_package = Path(flux_trio.__file__).parent
    assert found[3:5] == [of_package / "jobtap" / "builtins", of_package / "plugins"]
    assert [each.name for each in found[5:]] == ["plugins"]  # of a checkout


# --- entry points


@pytest.fixture
def installed(write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with entry points."""
    write("site_of_test_loading.py", CLASS + "number = 3\n")
    write("rules_of_test_loading.py", MODULE.format(beside="sys"))
    write("none-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: none\nVersion: 1\n")
    points = (
        "[flux_trio.jobtap]\n"
        "by-class = site_of_test_loading:Hold\n"
        "by-module = rules_of_test_loading\n"
        "number = site_of_test_loading:number\n"
        "missing = site_of_test_loading:Missing\n"
    )
    write("none-1.dist-info/entry_points.txt", points)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("site_of_test_loading", "rules_of_test_loading"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("installed")
def test_entry_point_is_a_class_or_a_module() -> None:
    plugin, where = Loader().find("by-class")
    assert plugin.name == "by-class"
    assert where == "flux_trio.jobtap by-class = site_of_test_loading:Hold"
    assert Loader().find("by-module")[0].name == "by-module"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "text"),
    [("number", "expected a jobtap.Plugin, got 3"), ("missing", "AttributeError: ")],
)
def test_entry_point_that_is_no_plugin_is_named(name: str, text: str) -> None:
    with pytest.raises(PluginError) as caught:
        Loader().find(name)
    assert str(caught.value).startswith(f"flux_trio.jobtap {name} = site_of_test_loading:")
    assert text in str(caught.value)
