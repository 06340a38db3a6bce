"""What is wrong with a plugin is said when it is loaded, with the rule."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from flux_trio import jobtap
from flux_trio.jobtap import HOOKS, Plugin, PluginError, State
from flux_trio.jobtap.catalogue import hook_of, is_glob
from flux_trio.jobtap.loaded import ModulePlugin, read_handlers
from flux_trio.protocols import STATE_TOPICS
from tests.support.plugin_host import handling


def problem(plugin: Plugin) -> str:
    with pytest.raises(PluginError) as caught:
        read_handlers(plugin)
    text = str(caught.value)
    assert text.startswith(f"plugin {plugin.name}: ")
    return text.removeprefix(f"plugin {plugin.name}: ")


def decorated(function: Callable[..., Any]) -> Plugin:
    made: Plugin = type("Made", (Plugin,), {"name": "a", "handle": staticmethod(function)})()
    return made


def asynchronous() -> Callable[..., Any]:
    """An async function of one parameter."""

    async def nothing(job: Any) -> None: ...

    return nothing


@pytest.mark.parametrize(
    ("topic", "function", "text"),
    [
        ("job.state.prioritize", lambda job: 1, "did you mean job.state.priority? there are"),
        ("job.stat.run", lambda job: 1, "job.stat.run: did you mean job.state.run? there are"),
        ("job.dependancy.x", lambda job, dependency: 1, "did you mean job.dependency.x? there"),
        ("jobs.new", lambda job: 1, "no hook is called jobs.new: did you mean job.new? there are"),
        ("Job.state.*", lambda job: 1, "no hook is called Job.state.*: "),
        ("job.validat*", lambda job, extra: 1, "expected (job), got (job, extra)"),
        ("job.nothing.*", lambda job: 1, "no hook is called job.nothing.*"),
        ("job.dependency.", lambda job, dependency: 1, "no hook is called job.dependency."),
        ("job.state.run", lambda: 1, "handler <lambda> of job.state.run: expected (job), got ()"),
        ("job.dependency.x", lambda job: 1, "expected (job, dependency), got (job)"),
        ("job.event.memo", lambda job: 1, "expected (job, event), got (job)"),
        ("job.update.x", lambda job: 1, "expected (job, update), got (job)"),
        ("job.*", lambda job, more: 1, "expected (job), since only some of these topics have more"),
        ("conf.update", lambda: 1, "expected (config), got ()"),
        ("conf.*", lambda config: 1, "no hook is called conf.*: there are conf.update"),
        ("plugin.query", lambda job: 1, "expected (), got (job)"),
        ("plugin.other", lambda: 1, "no hook is called plugin.other: did you mean plugin.query?"),
        ("word", lambda args: 1, "'word' is no topic"),
        ("my topic", lambda args: 1, "'my topic' is no topic"),
        ("*", lambda args: 1, "'*' is no topic"),
        ("my.topic", lambda: 1, "expected (args), got ()"),
        ("my.topic", asynchronous(), "handler nothing of my.topic cannot be async"),
    ],
)
def test_handler_that_cannot_work_is_refused(
    topic: str, function: Callable[..., Any], text: str
) -> None:
    assert text in problem(handling(topic, function))


@pytest.mark.parametrize(
    ("topic", "function"),
    [
        ("job.state.*", lambda job: 1),
        ("job.*", lambda job: 1),
        ("job.*", lambda job, more=None: 1),
        ("job.*", lambda *args: 1),
        ("job.event.*", lambda job, event: 1),
        ("job.update.attributes.user.*", lambda job, update: 1),
        ("job.update", lambda job, updates: 1),
        ("my.topic", lambda args: 1),
        ("my.*", lambda args: 1),
        ("jobs.counted", lambda args: 1),
        ("myjob.new", lambda args: 1),
        ("job.validate", asynchronous()),
    ],
)
def test_handler_that_can_work_is_taken(topic: str, function: Callable[..., Any]) -> None:
    assert [found for found, _ in read_handlers(handling(topic, function)).topics] == [topic]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (jobtap.on()(lambda job: 1), "on() expects at least one topic"),
        (jobtap.enter()(lambda job: 1), "enter() of <lambda> takes DEPEND, PRIORITY, SCHED, RUN"),
        (jobtap.enter(State.NEW)(lambda job: 1), "enter() of <lambda> takes DEPEND"),
        (jobtap.leave(State.INACTIVE)(lambda job: 1), "leave() of <lambda> takes DEPEND"),
        (
            jobtap.enter(State.RUN)(asynchronous()),
            "enter() handler nothing cannot be async: use on()",
        ),
        (jobtap.leave(State.RUN)(lambda: 1), "leave() handler <lambda>: expected (job)"),
        (jobtap.service("a b")(lambda request: 1), "'a b' is no name of a method"),
        (jobtap.service("status")(lambda: 1), "service <lambda>: expected (request)"),
    ],
)
def test_state_handler_or_service_that_cannot_work_is_refused(
    function: Callable[..., Any], text: str
) -> None:
    assert text in problem(decorated(function))


def test_two_services_of_one_name_are_refused() -> None:
    class Twice(Plugin):
        name = "twice"

        @jobtap.service("status")
        def one(self, request: jobtap.ServiceRequest) -> None: ...

        @jobtap.service("status")
        def two(self, request: jobtap.ServiceRequest) -> None: ...

    line = Twice.two.__code__.co_firstlineno
    assert problem(Twice()) == f"there are two services status ({__file__}:{line})"


def test_counter_of_a_state_that_is_not_left_is_refused() -> None:
    class Counts(Plugin):
        name = "counts"
        over = jobtap.counter(State.INACTIVE)

    assert problem(Counts()).startswith("counter over counts in NEW, DEPEND")


@pytest.mark.parametrize("name", ["a b", "", "a.b", "-a", ".", "a/b"])
def test_name_is_letters_digits_and_hyphens(name: str) -> None:
    plugin = Plugin()
    plugin.name = name
    with pytest.raises(PluginError, match="is not a plugin name"):
        read_handlers(plugin)


def test_handlers_are_found_in_the_order_written_base_classes_first() -> None:
    class Base(Plugin):
        name = "base"

        @jobtap.on("job.new")
        def one(self, job: jobtap.Job) -> str:
            return "base"

        @jobtap.on("job.validate", "job.create")
        def two(self, job: jobtap.Job) -> None: ...

    class Derived(Base):
        @jobtap.on("job.state.run")
        def three(self, job: jobtap.Job) -> None: ...

        @jobtap.on("job.new")
        def one(self, job: jobtap.Job) -> str:
            return "derived"

    found = read_handlers(Derived()).topics
    assert [topic for topic, _ in found] == [
        "job.new",
        "job.validate",
        "job.create",
        "job.state.run",
    ]
    assert found[0][1](None) == "derived"


def test_module_is_a_plugin_by_its_decorated_functions() -> None:
    module = types.ModuleType("some_module")
    source = (
        "from flux_trio import jobtap\n"
        "told = []\n"
        "running = jobtap.counter(jobtap.State.RUN)\n"
        "@jobtap.on('job.validate')\n"
        "def validate(job): pass\n"
        "@jobtap.enter(jobtap.State.RUN)\n"
        "def run(job): pass\n"
        "def loaded(plugin): told.append(plugin)\n"
    )
    exec(source, vars(module))
    plugin = ModulePlugin(module, "some-module")
    handlers = read_handlers(plugin)
    assert [topic for topic, _ in handlers.topics] == ["job.validate"]
    assert [counter.name for counter in handlers.counters] == ["running"]
    assert list(handlers.enter) == [State.RUN]
    plugin.loaded()
    plugin.removed()
    assert vars(module)["told"] == [plugin]


def test_every_state_but_new_has_a_hook() -> None:
    topics = {hook.topic for hook in HOOKS}
    assert {topic for state, topic in STATE_TOPICS.items() if state != State.NEW} <= topics
    assert len(topics) == len(HOOKS)


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.topic)
def test_each_topic_finds_its_own_row(hook: jobtap.Hook) -> None:
    topic = hook.prefix + "some.thing" if hook.prefix else hook.topic
    assert hook_of(topic) is hook
    assert hook.when.endswith(".")
    assert not is_glob(topic)
