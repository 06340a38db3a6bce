"""What a plugin has taken in memory is given back when it is removed."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
import trio.testing

from flux_trio.jobtap import Plugin, load_file
from tests.support.plugin_host import JOB, PRIORITY, Rig, rig

CLASS = """
    import trio
    from flux_trio import jobtap

    class Taken: pass

    class Takes(jobtap.Plugin):
        jobs = jobtap.counter(jobtap.State.PRIORITY)

        def __init__(self):
            self.taken = Taken()

        def loaded(self):
            self.start_soon(trio.sleep_forever)

        @jobtap.on("job.new")
        async def new(self, job):
            job.data["taken"] = self.taken
            job.subscribe()

        @jobtap.on("job.state.priority")
        def rank(self, job):
            if self.conf.get("fails"):
                raise ValueError(self.taken)
            return 5

        @jobtap.service("tell")
        def tell(self, request):
            return {}
    """
MODULE = """
    from flux_trio import jobtap

    class Taken: pass

    TAKEN = Taken()

    @jobtap.on("job.state.priority")
    def rank(job):
        return 5
    """


@pytest.fixture(autouse=True)
def _no_collections() -> Iterator[None]:
    """Nothing but the removal collects."""
    gc.disable()
    yield
    gc.enable()


def load(path: Path, code: str) -> tuple[Plugin, list[weakref.ref[object]]]:
    """Return the plugin of a file, and references to its module and to what that has taken."""
    path.write_text(dedent(code))
    plugin = load_file(path)
    module = sys.modules[f"flux_trio_jobtap_{path.stem}"]
    taken = getattr(module, "TAKEN", None) or plugin.taken  # type: ignore[attr-defined]  # its own
    return plugin, [weakref.ref(module), weakref.ref(taken), weakref.ref(module.Taken)]


async def use(r: Rig) -> None:
    r.jobs(JOB)
    r.ask("job.new")
    await trio.testing.wait_all_tasks_blocked()
    r.ask(PRIORITY)


@pytest.mark.parametrize(("code", "conf"), [(CLASS, {}), (CLASS, {"fails": True}), (MODULE, {})])
async def test_nothing_of_a_removed_plugin_stays(
    tmp_path: Path, code: str, conf: dict[str, bool]
) -> None:
    async with rig() as r:
        plugin, left = load(tmp_path / "takes.py", code)
        await r.host.load(plugin, conf)
        del plugin
        await use(r)
        await r.host.remove("takes")
        assert [each() for each in left] == [None, None, None]


async def test_nothing_stays_of_a_plugin_whose_next_version_takes_its_place(tmp_path: Path) -> None:
    async with rig() as r:
        plugin, left = load(tmp_path / "takes.py", CLASS)
        await r.host.load(plugin)
        await use(r)
        plugin, new = load(tmp_path / "takes.py", CLASS)
        await r.host.load(plugin, remove="takes")
        assert [each() for each in left] == [None, None, None]
        assert sys.modules["flux_trio_jobtap_takes"] is new[0]()
