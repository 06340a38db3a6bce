"""Who is examined, in which instance, and what the stories are."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from flux_trio.editions import CURRENT, EDITIONS
from tests.real.innocent.judging import config_of
from tests.real.innocent.kinds import ACTS, JOB_MANAGER, Kind, Setting, all_kinds
from tests.support.live_scheduling import FLUXION, fluxion_path, modules_of

KINDS: Final = 40
SEED: Final = 7
TRACED: Final = ("job-manager", "job-exec", "resource")
WHOLE: Final = "whole.jsonl"
"""The trace that an instance of ours writes. When a process receives a message, it cannot know."""
PRINTED: Final = "whole.trace"
"""What `flux module trace` prints."""
BROKERS: Final = 4
PLAIN: Final = Setting("", BROKERS, has_perilog=False, has_housekeeping=False)
LATE: Final = Setting("", BROKERS, has_perilog=False, has_housekeeping=True)
"""With housekeeping, which gives nodes back one by one."""

OURS: Final = """
[exec]
simulate = true
"""


class Examinee(NamedTuple):
    """A scheduler in an instance of flux-core, or of ours; None is our own one in ours."""

    name: str
    scheduler: str
    edition: str = ""  # of flux-trio; "" for an instance of flux-core

    @property
    def is_ours(self) -> bool:
        return bool(self.edition)

    @property
    def traces_itself(self) -> bool:
        """Whether each receipt is in the trace of the instance: its scheduler is no process."""
        return self.is_ours and self.scheduler_is_ours

    @property
    def scheduler_is_ours(self) -> bool:
        return self.scheduler.startswith("attach:") or (
            self.scheduler == "sched-simple" and self.is_ours
        )


def examinees() -> list[Examinee]:
    """Return those that can be examined here."""
    names = ["sched-simple", "sched-fifo", "sched-backfill"]
    names += ["fluxion"] if all(map(_has_module, FLUXION)) else []
    files = [f"{_module_path()}/{name}.py" for name in names if name != "fluxion"]
    return [
        *(Examinee(name, name) for name in names),
        Examinee("ours, attached", "attach:fifo"),
        *(Examinee(f"flux-trio, {each}", "sched-simple", each) for each in EDITIONS),
        *(Examinee(f"{Path(path).stem} here", path, CURRENT.name) for path in files),
        *(Examinee("fluxion here", name, CURRENT.name) for name in names if name == "fluxion"),
    ]


def others_here() -> list[Examinee]:
    """Return the schedulers of others that can be loaded in an instance of flux-trio."""
    return [each for each in examinees() if each.is_ours and not each.scheduler_is_ours]


def stories() -> list[tuple[Setting, tuple[Kind, ...]]]:
    """Return the 40 kinds, every act among them, by the instance that plays them."""
    draw = random.Random(SEED)
    every = all_kinds()
    draw.shuffle(every)
    first = {each.act: each for each in reversed(every)}
    chosen = [*first.values(), *(each for each in every if first[each.act] != each)][:KINDS]
    draw.shuffle(chosen)
    assert {each.act for each in chosen} == set(ACTS)
    chosen.sort(key=lambda each: each.act == JOB_MANAGER)  # these are played without housekeeping
    return [(LATE, tuple(chosen[:12])), (PLAIN, tuple(chosen[12:]))]


def command_of(testee: Examinee, setting: Setting, directory: Path) -> tuple[list[str], list[str]]:
    """Return the command of an instance without its program, and the traces that there will be."""
    config = directory / "flux.toml"
    if testee.is_ours:
        text = config_of(setting)
        if not EDITIONS[testee.edition].frees_in_parts:
            text = "".join(line for line in text.splitlines(True) if "release-after" not in line)
        config.write_text(f'edition = "{testee.edition}"\n{OURS}{text}')
        start = [sys.executable, "-m", "flux_trio", "start", "-c", str(config)]
        start += ["--statedir", str(directory / "s"), "--trace", str(directory / WHOLE)]
        return start, [WHOLE] if testee.traces_itself else [WHOLE, PRINTED]
    config.write_text(config_of(setting))
    hosts = f"--test-hosts=node[0-{setting.brokers - 1}]"
    start = ["flux", "start", "-s", str(setting.brokers), hosts, f"--config-path={config}"]
    return start, [PRINTED]


def traced_modules(testee: Examinee) -> list[str]:
    """Return the modules of flux-core whose messages are the trace."""
    return [*TRACED, *([] if testee.scheduler_is_ours else modules_of(testee.scheduler))]


def _has_module(name: str) -> bool:
    return fluxion_path(name) is not None


def _module_path() -> str:
    """Return where flux-core has its modules."""
    flux = shutil.which("flux")
    assert flux is not None, "flux is not on PATH"
    found = subprocess.run(
        [flux, "env", "printenv", "FLUX_MODULE_PATH"], capture_output=True, text=True, check=True
    )
    places = [Path(each) for each in found.stdout.strip().split(":")]
    return str(next(each for each in places if (each / "sched-simple.py").exists()))
