"""Asking plugins: each question goes along a chain of handlers, in load order.

A sync handler answers at once, inside the job manager's turn. After an async handler, the rest of
the chain is asked when that handler has answered or its plugin is removed. A plugin that raises,
exceeds its deadline or returns a wrong value is named in the answer's error, and the chain ends
there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import repeat, takewhile
from time import perf_counter
from typing import Any, Final

from flux_trio.config import Config
from flux_trio.jobtap.calls import (
    CANCELED,
    HOOK,
    Call,
    Caller,
    blame,
    note_of,
    notes_of_many,
    of_job,
)
from flux_trio.jobtap.catalogue import CUSTOM, HOOKS, Hook, hook_of, problem_with
from flux_trio.jobtap.decorators import Function
from flux_trio.jobtap.failures import attempt, describe, is_awaitable, refusal_in
from flux_trio.jobtap.host_services import HostServices
from flux_trio.jobtap.job import Job
from flux_trio.jobtap.loaded import STATE_HANDLER, Entry, Loaded
from flux_trio.jobtap.loop_watch import LOOK_S
from flux_trio.jobtap.question import NOTHING_SAID, PendingAnswer
from flux_trio.jobtap.tasks import Work, current_work
from flux_trio.jobtap.values import PluginError, priorities_in, shown
from flux_trio.protocols import (
    CONF_UPDATE,
    DESTROY,
    EVENT_PREFIX,
    AskHook,
    AskJobs,
    HookAnswer,
    HookAnswered,
    HookArgs,
    JobsAnswered,
    JobView,
    PluginInterests,
)

_CHAINS_MAX: Final = 4096  # users choose the topics of updates and events


class PendingQuestion(PendingAnswer):
    """A question, and the handlers that are still to be asked.

    `done` is called with this object and the answer, if the answer does not come at once.
    """

    work: Work  # the task of the async handler that runs

    def __init__(
        self,
        question: AskHook,
        hook: Hook,
        chain: Sequence[Entry],
        done: Callable[[PendingQuestion, HookAnswer], None],
    ) -> None:
        super().__init__(question, hook)
        self.rest: Iterator[Entry] = iter(chain)
        self.done = done


class Series:
    """Successful calls of handlers, one after another; they are traced together.

    A look at the clock and a record for each call would cost more than most handlers do.
    """

    __slots__ = ("began", "is_traced", "notes")

    def __init__(self, is_traced: bool, now: Callable[[], float]) -> None:
        self.is_traced = is_traced
        # of the first call that is not traced yet, by the instance's clock; 0.0 without a trace
        self.began = now() if is_traced else 0.0
        self.notes: list[dict[str, Any]] = []


class Dispatcher(Caller):
    """The chains of handlers by topic, and the questions whose async handlers still run.

    `config` is the configuration that no plugin has refused.
    """

    def __init__(self, given: HostServices, config: Config, look_s: float = LOOK_S) -> None:
        super().__init__(given, look_s)
        self.config = config
        self.subscribers: dict[int, set[str]] = {}  # job id → names of plugins
        self.topics_changed = True  # since the last `news`
        self._noted = True  # what the job manager knows: whether the trace has a reader
        self._keeps = False  # a job may have data or subscribers, which end with it
        self._unsaid: dict[int, bool] = {}  # by job, since the last `news`: is subscribed
        self._chains: dict[str, list[Entry]] = {}
        self._awaited: dict[int, PendingQuestion] = {}
        self._pending: PendingQuestion | None = None  # the question whose sync handler runs

    # --- for the job manager (`Plugins`)

    def news(self) -> PluginInterests | None:
        is_traced = self._is_traced()
        if not (self.topics_changed or self._unsaid or is_traced is not self._noted):
            return None
        notes = None if is_traced is self._noted else is_traced
        self._noted = is_traced
        topics: tuple[str, ...] | None = None
        of_many: tuple[str, ...] = ()
        if self.topics_changed:
            handled = [topic for loaded in self.plugins for topic in loaded.topics()]
            own = [DESTROY] if self._keeps else []  # the host itself handles it then
            topics = tuple(dict.fromkeys([*own, *handled]))
            of_many = self._of_many()
        unsaid, self._unsaid = self._unsaid, {}
        self.topics_changed = False
        return PluginInterests(
            topics,
            subscribed=tuple(jobid for jobid, is_so in unsaid.items() if is_so),
            unsubscribed=tuple(jobid for jobid, is_so in unsaid.items() if not is_so),
            notes=notes,
            of_many=of_many,
        )

    def _of_many(self) -> tuple[str, ...]:
        """Return the topics for which each handler answers for many jobs in one call."""
        possible = [hook.topic for hook in HOOKS if hook.of_many]
        return tuple(
            topic
            for topic in possible
            if all(entry.many is not None for entry in self._chain(topic))
        )

    def ask(self, question: AskHook) -> HookAnswer | None:
        chain = self._chain(question.topic)
        if question.only is not None:
            chain = [entry for entry in chain if entry.owner.name == question.only]
        return self._advance(
            PendingQuestion(question, hook_of(question.topic), chain, self._answered)
        )

    def ask_jobs(self, question: AskJobs) -> JobsAnswered:
        chain = self._chain(question.topic)
        many = list(takewhile(lambda entry: entry.many is not None, chain))
        series = Series(self._is_traced(), self._now)
        said, error = self._ask_many(question, many, series)
        answers: Iterable[HookAnswer | None]
        if error is not None:
            answers = repeat(HookAnswer(error=error), len(said))
        elif len(many) == len(chain):
            answers = [NOTHING_SAID if each is None else HookAnswer(each) for each in said]
        else:
            answers = self._ask_each(question, chain[len(many) :], said, series)
        self._note_calls(series)
        return JobsAnswered(question.ticket, tuple(answers))

    def _ask_many(
        self, question: AskJobs, chain: list[Entry], series: Series
    ) -> tuple[list[Any], str | None]:
        """Ask handlers of many jobs; return what they say about each job, and a failure."""
        views, topic = question.jobs, question.topic
        last: list[Any] = [None] * len(views)

        def ask(entry: Entry) -> list[Any]:
            jobs = [Job(view, None, entry.owner.job_host) for view in views]
            return priorities_in(self.watched(entry, None, jobs), len(views))

        for entry in [one.many for one in chain if one.many is not None]:
            began, t_began = self._now(), perf_counter()
            said, error = attempt(ask, entry)
            if error is not None:
                self._note_calls(series)
                problem = describe(error)
                text = blame(entry, topic, None, problem)
                self.failed(entry, text, error)
                self._record(entry, topic, None, None, problem, began, t_began)
                return last, text
            spent = perf_counter() - t_began
            entry.spent(spent)
            if series.is_traced:
                series.notes += notes_of_many(entry, topic, views, said, spent / len(views))
            last = [old if new is None else new for old, new in zip(last, said, strict=True)]
        return last, None

    def _ask_each(
        self, question: AskJobs, chain: list[Entry], said: list[Any], series: Series
    ) -> list[HookAnswer | None]:
        """Ask one job after the other; `said` has the values of the plugins before `chain`."""
        hook, done = hook_of(question.topic), self._answered
        answers = []
        for each, priority in zip(question.questions(), said, strict=True):
            pending = PendingQuestion(each, hook, chain, done)
            pending.priority = priority
            answers.append(self._ask_rest(pending, series))
        return answers

    def cancel(self, ticket: int) -> None:
        pending = self._awaited.pop(ticket, None)
        if pending is not None:
            pending.closed = True
            pending.work.end()

    def notify(self, topic: str, job: JobView, args: HookArgs = None) -> None:
        chain = self._chain(topic)
        if topic.startswith(EVENT_PREFIX):
            names = self.subscribers.get(job.id, ())
            chain = [entry for entry in chain if entry.owner.name in names]
        if chain:
            self._notify_chain(chain, AskHook(0, topic, job, args))
        if topic == DESTROY:
            self.subscribers.pop(job.id, None)
            self._unsaid.pop(job.id, None)  # the job manager forgets the job by itself
            for loaded in self.plugins:
                if loaded.tracker is not None:
                    self._leave(loaded, job)
                if loaded.data:
                    loaded.data.pop(job.id, None)

    def _notify_chain(self, chain: list[Entry], question: AskHook) -> None:
        hook, series = hook_of(question.topic), Series(self._is_traced(), self._now)
        for entry in chain:
            pending = PendingQuestion(question, hook, (entry,), self._send_operations)
            answer = self._ask_rest(pending, series)
            if answer is not None and answer.operations:
                self._send_operations(pending, answer)
        self._note_calls(series)

    # --- for plugins

    def keep(self) -> None:
        """Ask the job manager to report the end of each job: something is kept of a job now."""
        if not self._keeps:
            self._keeps = self.topics_changed = True

    def look_again(self) -> None:
        """Forget the chains that were looked up: the list of plugins has changed."""
        self._chains.clear()
        self.topics_changed = True
        kept = any(loaded.tracker is not None or loaded.data for loaded in self.plugins)
        self._keeps = kept or bool(self.subscribers)

    def subscribe(self, jobid: int, plugin: str) -> None:
        """Tell `plugin` of this job's events."""
        self.keep()
        names = self.subscribers.setdefault(jobid, set())
        if not names:
            self._unsaid[jobid] = True
        names.add(plugin)

    def unsubscribe(self, jobid: int, plugin: str) -> None:
        """Stop telling `plugin` of this job's events."""
        names = self.subscribers.get(jobid, set())
        names.discard(plugin)
        if not names and self.subscribers.pop(jobid, None) is not None:
            self._unsaid[jobid] = False

    def call(self, topic: str, args: Any) -> Any:
        """Call the handlers of a custom topic; return the last answer that is not None."""
        chain = self._chain(topic) if hook_of(topic) is CUSTOM else []
        if not chain:
            raise PluginError(f"no plugin handles {topic}")
        answer = None
        for entry in chain:
            said = self.timed(entry, None, args)
            answer = answer if said is None else said
        return answer

    # --- what a plugin has entered

    def forget(self, loaded: Loaded) -> None:
        """Delete the data of a removed plugin, after it has left every state that it entered."""
        for jobid in [] if loaded.tracker is None else loaded.tracker.entered:
            view = self.jobs.get(jobid)
            if view is not None:
                self._leave(loaded, view)
        loaded.data.clear()
        for jobid in list(self.subscribers):
            self.unsubscribe(jobid, loaded.name)

    def _leave(self, loaded: Loaded, view: JobView) -> None:
        if loaded.tracker is not None:
            for error in loaded.tracker.gone(Job(view, None, loaded.job_host)):
                entry = loaded.entry("leave", loaded.tracker.gone, STATE_HANDLER)
                self.failed(entry, blame(entry, "leave", view, describe(error)), error)

    # --- one question

    @property
    def pending_question(self) -> PendingQuestion | None:
        """The question whose handler runs now in this task, if any."""
        if self._pending is not None:
            return self._pending
        work = current_work.get()
        pending: PendingQuestion | None = None if work is None else work.pending
        return pending

    def _chain(self, topic: str) -> list[Entry]:
        chain = self._chains.get(topic)
        if chain is None:
            if len(self._chains) > _CHAINS_MAX:
                self._chains.clear()
            chain = [entry for loaded in self.plugins for entry in loaded.chained(topic)]
            self._chains[topic] = chain
        return chain

    def _advance(self, pending: PendingQuestion) -> HookAnswer | None:
        """Ask the rest of the chain; return the answer, or None when it comes later."""
        series = Series(self._is_traced(), self._now)
        answer = self._ask_rest(pending, series)
        self._note_calls(series)
        return answer

    def _ask_rest(self, pending: PendingQuestion, series: Series) -> HookAnswer | None:
        question, args = pending.question, pending.own_args
        topic, view = question.topic, question.job
        jobid = None if view is None else view.id
        watch, outer = self.watch, self._pending
        self._pending = pending
        t_began = perf_counter()
        try:
            for entry in pending.rest:
                watch.running = (entry, view)
                operations = pending.operations
                mark = 0 if operations is None else len(operations)
                given: tuple[Any, ...] = ()
                if entry.of_job:
                    given = (Job(view, question, entry.owner.job_host),)  # type: ignore[arg-type]  # is of a job
                if entry.extra:
                    said, error = attempt(_call_with, entry.function, given, args)
                else:
                    said, error = attempt(entry.function, *given)
                taken = True
                if said is not None:
                    taken, error = attempt(pending.add_value, said)
                if taken and error is None:
                    t_ended = perf_counter()
                    spent = t_ended - t_began
                    entry.spent(spent)
                    if series.is_traced:
                        result = None if said is None else shown(said)
                        series.notes.append(
                            note_of(entry.plugin, topic, jobid, result, None, spent)
                        )
                    t_began = t_ended
                    continue
                self._note_calls(series)
                began = series.began if series.is_traced else self._now()
                call = Call(entry, mark, began, t_began)
                if said is not None and error is None and is_awaitable(said):
                    self._start_async(pending, call, said)
                    return None
                series.began, t_began = self._conclude(pending, call, said, error)
                if pending.is_decided:
                    break
        finally:
            watch.running, self._pending = None, outer
        return pending.answer()

    def _note_calls(self, series: Series) -> None:
        """Trace the calls of `series` since the last time, with one look at the clock."""
        notes = series.notes
        if not notes:
            return
        now = self._now()
        if now == series.began:  # a clock that stands still while a handler runs is a virtual one
            for note in notes:
                note["duration"] = 0.0
        self._note_all(HOOK, notes)
        series.notes, series.began = [], now

    def _start_async(self, pending: PendingQuestion, call: Call, said: Awaitable[Any]) -> None:
        entry, question = call.entry, pending.question
        work = pending.work = entry.owner.tasks.new(
            f"{question.topic}{of_job(question.job)}", pending
        )
        work.start(said)
        if pending.question.ticket:
            self._awaited[pending.question.ticket] = pending
        entry.owner.tasks.start_soon(self._await_handler, pending, call)

    async def _await_handler(self, pending: PendingQuestion, call: Call) -> None:
        """Wait for an async handler, then go on with the others."""
        entry, question = call.entry, pending.question
        value, error = await self.answer_of(pending.work, entry.owner.deadline)
        self._awaited.pop(question.ticket, None)
        if pending.closed:
            if not entry.owner.is_removed:
                self._record(entry, question.topic, question.job, None, CANCELED, *call.times)
            return
        if entry.owner.is_removed:
            pending.forget_since(call.mark)
        else:
            self._conclude(pending, call, value, error)
        self._go_on(pending)

    def _go_on(self, pending: PendingQuestion) -> None:
        pending.rest = iter([entry for entry in pending.rest if not entry.owner.is_removed])
        answer = pending.answer() if pending.is_decided else self._advance(pending)
        if answer is not None:
            pending.done(pending, answer)

    def _conclude(
        self, pending: PendingQuestion, call: Call, said: Any, error: BaseException | None
    ) -> tuple[float, float]:
        """Put the value or error of a handler into the answer and the trace; return the times."""
        entry, question = call.entry, pending.question
        result, problem = None, None
        if pending.hook.rejects and (reason := refusal_in(error)) is not None:
            pending.reject = _refusal(entry, question.topic, reason)
            result = {"reject": reason}
        elif error is not None:
            problem = describe(error)
        elif said is not None:
            result, problem = _checked(pending, said)
        if problem is not None:
            pending.forget_since(call.mark)
            pending.error = blame(entry, question.topic, question.job, problem)
            self.failed(entry, pending.error, error)
        return self._record(entry, question.topic, question.job, result, problem, *call.times)

    def _answered(self, pending: PendingQuestion, answer: HookAnswer) -> None:
        self.given.post(HookAnswered(pending.question.ticket, answer))

    def _send_operations(self, _pending: PendingQuestion, answer: HookAnswer) -> None:
        """Send the operations of a notification to the job manager as inputs."""
        for operation in answer.operations:
            self.given.post(operation)


def _checked(pending: PendingQuestion, said: Any) -> tuple[Any, str | None]:
    """Return the trace's form of a value, and None or what is wrong with the value."""

    def check() -> tuple[Any, str | None]:
        if pending.add_value(said):
            return shown(said), None
        return None, problem_with(pending.hook, said)

    taken, error = attempt(check)  # a value may have code of its own
    return taken if error is None else (None, describe(error))


def _refusal(entry: Entry, topic: str, reason: str) -> str:
    """Return the reason for a user; for a new configuration it names the plugin, too."""
    return f"plugin {entry.plugin}: {reason}" if topic == CONF_UPDATE else reason


def _call_with(function: Function, given: tuple[Any, ...], args: Callable[[], Any]) -> Any:
    """Call a handler with its own copy of the question's argument, which may be nested too deep."""
    return function(*given, args())
