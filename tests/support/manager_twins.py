"""A job manager's script whose core has a twin that is put down and taken up at times."""

from __future__ import annotations

from typing import Any, ClassVar

from flux_trio.config import Config
from flux_trio.cores.job_manager.core import JobManagerCore
from tests.support.asking import OWNER_USERID
from tests.support.manager_script import ManagerScript
from tests.support.reborn_twin import Twins


class ManagerTwins(Twins):
    @property
    def is_turning(self) -> bool:
        is_turning: bool = self.core.is_turning
        assert self.twin.is_turning == is_turning
        return is_turning

    def plugins_replied(self, said: Any) -> Any:
        return self.call("plugins_replied", said)

    def go_on(self) -> Any:
        return self.call("go_on")


class TwinScript(ManagerScript):
    """The script with twins in place of its core."""

    is_numbered: ClassVar[bool] = True

    def _make_core(self, config: Config | None) -> Any:
        def make() -> JobManagerCore:
            return JobManagerCore(OWNER_USERID, config)

        return ManagerTwins(make, is_numbered=self.is_numbered)
