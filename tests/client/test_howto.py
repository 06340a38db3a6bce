"""The program of docs/howto/drive-it-from-asyncio.md, in both event loops."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import anyio
import pytest

from tests.support.instance import RunningInstance, running_instance

pytestmark = pytest.mark.real

PROGRAM = Path(__file__).parents[2] / "docs" / "howto" / "asyncio" / "drive.py"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> RunningInstance:
    with running_instance(tmp_path_factory.mktemp("instance")) as running:
        yield running


@pytest.fixture
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("drive", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_program_does_what_the_page_says(
    instance: RunningInstance,
    program: ModuleType,
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("FLUX_TRIO_URI", "FLUX_TRIO_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLUX_TRIO_STATEDIR", str(instance.statedir))
    assert os.environ["FLUX_TRIO_STATEDIR"]
    anyio.run(program.main, backend=backend)
    said = capsys.readouterr().out.splitlines()
    assert [line.partition("job ")[0] for line in said[:3]] == ["true: ", "false: ", "sleep 1000: "]
    assert sorted(said[3:5]) == ["false: status 256", "true: status 0"]
    assert said[5] in ("sleep 1000: status 36608", "sleep 1000: status None")  # None: it never ran
    assert said[6].startswith("refused with errno 22: ")
