"""validate-duration: a job may not ask for more time than the instance has left."""

from __future__ import annotations

from collections.abc import Callable

from flux_trio import jobtap
from flux_trio.jobtap.builtins.durations import spell_duration


class Lifetime:
    """When the instance ends, seconds since the Unix epoch; 0.0 if it has no end."""

    def __init__(self, expiration: float) -> None:
        self.expiration = expiration
        self.listeners: list[Callable[[], None]] = []

    def change(self, expiration: float) -> None:
        """Set the end, and call the listeners."""
        self.expiration = expiration
        for changed in self.listeners:
            changed()


class ValidateDuration(jobtap.Plugin):
    """Refuses a job that would end after the instance."""

    name = ".validate-duration"

    def __init__(self, lifetime: Lifetime) -> None:
        self._lifetime = lifetime

    def loaded(self) -> None:
        """Look at jobs only while the instance has an end."""
        self._lifetime.listeners.append(self._changed)
        self._changed()

    def removed(self) -> None:
        """Stop listening to changes of the instance's end."""
        self._lifetime.listeners.remove(self._changed)

    def _changed(self) -> None:
        self.listen("job.validate", wanted=self._lifetime.expiration > 0)

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        """Refuse a job that would end too late; without a duration it ends with the instance."""
        left = max(0.0, self._lifetime.expiration - self.now())
        duration = job.jobspec.duration
        if duration > left:
            asked, remaining = spell_duration(duration), spell_duration(left)
            raise jobtap.Reject(
                f"job duration ({asked}) exceeds remaining instance lifetime ({remaining})"
            )
