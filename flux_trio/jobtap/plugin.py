"""`Plugin`: the base class of plugins, with what their methods find in `self`.

A module with decorated functions is a plugin as well; its functions use `job.plugin` as `self`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from flux_trio.config import Config
from flux_trio.jobtap.job import Host, JobLookup
from flux_trio.jobtap.values import PluginError, Reject

T = TypeVar("T")

DEADLINE_S: Final = 60.0  # seconds; a job should not wait longer for a hook


class Plugin:
    """A named set of handlers: methods that a decorator makes one.

    >>> from flux_trio import jobtap
    >>> class ShortFirst(jobtap.Plugin):
    ...     @jobtap.on("job.validate")
    ...     def validate(self, job: jobtap.Job) -> None:
    ...         if not job.jobspec.duration:
    ...             raise jobtap.Reject("say how long the job takes: -t TIME")
    ...
    ...     @jobtap.on("job.state.priority")
    ...     def priority(self, job: jobtap.Job) -> int:
    ...         return 86400 - int(job.jobspec.duration)
    >>> from flux_trio.testing import PluginHarness
    >>> with PluginHarness(ShortFirst) as harness:
    ...     harness.submit(duration=400).priority
    86000
    """

    name: str = ""
    """By default the name of its file, or of its class, with hyphens.

    Builtin plugins have names that start with a period.
    """

    deadline: ClassVar[float] = DEADLINE_S
    """Seconds that one of its async handlers may take."""

    conf: dict[str, Any] = {}  # noqa: RUF012 - each loaded plugin is given one of its own
    """The JSON object that it was loaded with."""

    _jobtap: Host | None = None  # set while it is loaded; authors may use all other names

    def loaded(self) -> None:
        """Called when the plugin is loaded; start background tasks here."""

    def removed(self) -> None:
        """Called when the plugin is removed or the instance ends, after its tasks have ended."""

    # --- the instance

    def now(self) -> float:
        """Seconds since the Unix epoch, by the instance's clock."""
        return self._host().now()

    def passed(self) -> float:
        """Seconds since an arbitrary moment, for durations; a suspended machine counts, too.

        They do not change when somebody sets the clock.
        """
        return self._host().passed()

    def clock_look_s(self) -> float:
        """The longest time to wait before asking `now` again; infinity if nobody sets the clock."""
        return self._host().clock_look_s()

    def log(self, level: int, text: str) -> None:
        """Write to the instance's log in the plugin's name; `level` is a syslog severity."""
        self._host().log(level, text)

    @property
    def owner(self) -> int:
        """The instance owner's userid."""
        return self._host().owner

    @property
    def users(self) -> Any:
        """The user database: `await self.users(userid)` has a `name`, or None, and `groups`."""
        return self._host().users

    @property
    def config(self) -> Config:
        """The instance's configuration."""
        return self._host().config

    @property
    def jobs(self) -> JobLookup:
        """Jobs as they are now, by id."""
        return self._host().jobs

    def read_conf(self, shape: type[T]) -> T:
        """Return `conf` as a msgspec struct. Raises Reject, naming the field and the problem."""
        try:
            return msgspec.convert(self.conf, shape)
        except msgspec.ValidationError as error:
            raise Reject(str(error)) from None

    # --- operations

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `function(*args)` in the background until it returns or the plugin is removed.

        An error in it is logged with its stack, and ends nothing else.
        """
        self._host().start_soon(function, *args)

    def call(self, topic: str, args: Any = None) -> Any:
        """Call the plugins that handle a custom topic; return the last answer that is not None.

        The first error of a handler ends the call and is raised.
        """
        return self._host().call(topic, args)

    async def rpc(self, topic: str, payload: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask a service of the instance. Raises FluxError."""
        return await self._host().rpc(topic, payload)

    def listen(self, topic: str, *, wanted: bool = True) -> None:
        """Call the handler of a topic from now on, or stop calling it if it is not `wanted`.

        At first every handler is called. A plugin without a limit to check, for example, spares the
        instance a call for each job. The topic, or glob, is one of the plugin's decorators.
        """
        self._host().listen(topic, wanted=wanted)

    def reprioritize_all(self) -> None:
        """Ask job.priority.get about every job in PRIORITY or SCHED."""
        self._host().reprioritize_all()

    def _host(self) -> Host:
        if self._jobtap is None:
            raise PluginError(f"plugin {self.name or type(self).__name__} is not loaded")
        return self._jobtap
