"""The shell host: `python -m flux_trio.shell DIRECTORY`.

The processes of jobs are its children, so a job goes on when the exec service, its instance or
their terminal ends. There is one host per directory: it holds a lock there, and listens on a
socket. The command returns 0 once the host listens, or `ALREADY_RUNNING` if the lock is held; the
host itself is a daemon in a session of its own, which writes to `host.log`.

The host ends on request if nothing runs, or by itself after `IDLE_S` seconds without a client and
without a process. Jobs that have ended and were not acknowledged stay on disk for the next host.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from functools import partial
from pathlib import Path
from typing import Final

import trio

from flux_trio.process.console import STDERR, fill_standard_descriptors
from flux_trio.process.listening import serve_listeners
from flux_trio.process.private import FILE_MODE, PrivateDirectory, private_directory, set_mode
from flux_trio.shell.job import Process, ShellJob
from flux_trio.shell.jobs import ShellJobs
from flux_trio.shell.labels import LOOK_S
from flux_trio.shell.orphans import become_subreaper
from flux_trio.shell.pmi import PmiServer
from flux_trio.shell.protocol import (
    ALREADY_RUNNING,
    JOBS_NAME,
    LOCK_NAME,
    LOG_NAME,
    REQUESTS,
    SOCKET_NAME,
    Ack,
    Attach,
    Feed,
    Identify,
    List,
    ShellNotice,
    ShellProtocolError,
    ShellRequest,
    Shutdown,
    Signal,
    Start,
    Survey,
    WantsPmi,
)
from flux_trio.shell.stream import ShellStream, is_same_user

LOOK_AGAIN_S: Final = 0.1
IDLE_S: Final = 10.0  # longer than the restart of an instance takes


class ShellHost:
    """Serves the clients' requests with the jobs of one directory."""

    def __init__(self, jobs: ShellJobs) -> None:
        self._jobs = jobs
        self._clients: set[ShellStream[ShellRequest]] = set()
        self._busy_at = trio.current_time()
        self._end = trio.Event()

    async def run(self, listener: socket.socket) -> None:
        """Serve until `Shutdown`, or until idle for IDLE_S."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._reap, nursery)
            for process in self._jobs.recover():
                nursery.start_soon(self._await_adopted, process, nursery)
            self._clear_left(nursery)
            self._label_new(nursery)
            nursery.start_soon(self._jobs.cgroups.run)
            sockets = [trio.SocketListener(trio.socket.from_stdlib_socket(listener))]
            nursery.start_soon(serve_listeners, partial(self._serve, nursery), sockets)
            nursery.start_soon(self._end_when_idle)
            await self._end.wait()
            nursery.cancel_scope.cancel()
        await self._jobs.cgroups.leave()

    async def _serve(self, clearing: trio.Nursery, connection: trio.SocketStream) -> None:
        """Serve one client; `clearing` is the nursery, outliving it, for tasks that clear jobs."""
        if not is_same_user(connection):
            await connection.aclose()
            return
        client = ShellStream(connection, REQUESTS)
        self._clients.add(client)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.pump)
                while requests := await client.receive():
                    for request in requests:
                        if isinstance(request, Start):
                            await self._jobs.cgroups.ready()
                        self._handle(client, request, nursery)
                        self._watch_pmi(clearing)
                        self._label_new(clearing)
                        self._jobs.cgroups.move_on()
                        self._clear_left(clearing)
                        await trio.lowlevel.checkpoint()  # a launch takes a millisecond
                nursery.cancel_scope.cancel()
        except* ShellProtocolError as errors:
            STDERR.write(f"closed the connection of a client: {errors.exceptions[0]}")
        finally:
            client.close()
            self._clients.discard(client)
            self._busy_at = trio.current_time()

    def _handle(
        self, client: ShellStream[ShellRequest], request: ShellRequest, nursery: trio.Nursery
    ) -> None:
        match request:
            case Start():
                self._broadcast(self._jobs.start(request))
            case Attach(jobid):
                self._broadcast(self._jobs.attach(jobid))
            case Signal(jobid, signum):
                self._jobs.signal(jobid, signum)
            case Survey(jobid):
                self._broadcast(self._jobs.survey(jobid))
            case Identify(jobid):
                client.send(self._jobs.identify(jobid))
            case Feed():
                nursery.start_soon(self._feed, client, request)
            case Ack(jobid):
                self._jobs.ack(jobid)
            case List():
                client.send(self._jobs.ended())
            case Shutdown():
                if not self._jobs.nrunning and self._clients == {client}:
                    self._end.set()

    async def _feed(self, client: ShellStream[ShellRequest], request: Feed) -> None:
        """Feed a job; cancelled when the client leaves, because only it gets the response."""
        client.send(await self._jobs.feed(request))

    def _broadcast(self, notices: list[ShellNotice]) -> None:
        for notice in notices:
            for client in self._clients:
                client.send(notice)

    async def _reap(self, nursery: trio.Nursery, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGCHLD) as signals:
            task_status.started()
            async for _ in signals:
                self._broadcast(self._jobs.reap())
                self._clear_left(nursery)
                self._busy_at = trio.current_time()

    def _clear_left(self, nursery: trio.Nursery) -> None:
        for job in self._jobs.pop_to_clear():
            nursery.start_soon(self._clear, job)

    def _watch_pmi(self, nursery: trio.Nursery) -> None:
        sockets = self._jobs.pmi
        came, sockets.came = sockets.came, []
        for server, taskid, ours in came:
            nursery.start_soon(self._serve_pmi, server, taskid, ours)
        shared, sockets.shared = sockets.shared, []
        for jobid, ours in shared:
            nursery.start_soon(self._watch_shared, jobid, ours)

    async def _serve_pmi(self, server: PmiServer, taskid: int, ours: socket.socket) -> None:
        """Answer a task that asks for the others, until it and its processes have ended."""
        while True:
            await trio.lowlevel.wait_readable(ours)
            if not server.readable(taskid):
                self._jobs.pmi.closed()
                return

    async def _watch_shared(self, jobid: int, ours: socket.socket) -> None:
        """Report a task that asks where no answer comes, or wait until all tasks have ended."""
        await trio.lowlevel.wait_readable(ours)
        if self._jobs.pmi.asked(ours):
            self._broadcast([WantsPmi(jobid)])

    def _label_new(self, nursery: trio.Nursery) -> None:
        for job in self._jobs.pop_to_label():
            nursery.start_soon(self._label, job)

    async def _label(self, job: ShellJob) -> None:
        """Label the output of a job while it runs; what is left is labeled when it has ended."""
        is_running = True
        while is_running:
            await trio.sleep(LOOK_S)
            is_running = await self._jobs.copy_lines(job)

    async def _clear(self, job: ShellJob) -> None:
        """Kill the remaining processes of a job and wait for each, even if stuck in the kernel."""
        while True:
            try:
                left = await self._jobs.kill_leftovers(job)
            except OSError:  # no free descriptor
                await trio.sleep(LOOK_AGAIN_S)
                continue
            if not left:
                break
            # Only the first: another may be reaped meanwhile, and its id used for a new process.
            await _wait_gone(left[0])
        await self._jobs.read_outputs(job)
        await self._jobs.remove_directory(job)
        self._broadcast(self._jobs.cleared(job))
        self._busy_at = trio.current_time()

    async def _await_adopted(self, process: Process, nursery: trio.Nursery) -> None:
        await _wait_gone(process.pid)
        self._broadcast(self._jobs.end_adopted(process))
        self._clear_left(nursery)
        self._busy_at = trio.current_time()

    async def _end_when_idle(self) -> None:
        while True:
            await trio.sleep_until(max(self._busy_at, trio.current_time() - IDLE_S) + IDLE_S)
            if self._clients or self._jobs.nrunning:
                await trio.sleep(IDLE_S)
            elif trio.current_time() >= self._busy_at + IDLE_S:
                self._end.set()


async def _wait_gone(pid: int) -> None:
    """Wait until there is no process `pid`, or until it is a zombie."""
    while True:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        except OSError:  # no free descriptor
            await trio.sleep(LOOK_AGAIN_S)
            continue
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        return


def main(directory: Path) -> int:
    """Start a host for `directory`; the calling process returns once the host listens.

    Raises OSError if a host cannot start there; then nothing of it is left.
    """
    fill_standard_descriptors()  # first, so that 0 to 2 are not used for other files
    with private_directory(directory.parent) as parent:
        own = parent.make(directory.name)
    jobs = own.make(JOBS_NAME)
    lock = own.open(LOCK_NAME, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return ALREADY_RUNNING
    listener = _listen(own)
    if os.fork():
        return 0
    os.setsid()
    let_tasks_be_interrupted()
    become_subreaper()
    _redirect(own)
    try:
        trio.run(_serve_directory, directory, jobs, listener)
    finally:
        own.unlink(SOCKET_NAME)  # before the process ends and releases the lock
    return 0


def let_tasks_be_interrupted() -> None:
    """Take back that interrupts are ignored, since tasks would ignore them, too.

    A shell starts a command in the background of a script so. This process has a session of its
    own, to which no terminal sends them.
    """
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


async def _serve_directory(
    directory: Path, jobs: PrivateDirectory, listener: socket.socket
) -> None:
    await ShellHost(ShellJobs(directory, jobs)).run(listener)


def _listen(own: PrivateDirectory) -> socket.socket:
    """Return the socket; replaces a stale one (the lock is ours, so no host uses it)."""
    own.unlink(SOCKET_NAME)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"/proc/self/fd/{own.descriptor}/{SOCKET_NAME}")
    set_mode(SOCKET_NAME, FILE_MODE, own.descriptor)
    listener.listen()
    return listener


def _redirect(own: PrivateDirectory) -> None:
    """Replace the caller's terminal and pipes by the log, or by /dev/null if that fails."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        out = own.open(LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError:
        out = os.dup(null)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(null)
    os.close(out)
