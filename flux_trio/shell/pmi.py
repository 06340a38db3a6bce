"""PMI-1, by which the tasks of a job find each other (RFC 13): its wire protocol, and its sockets.

MPI programs and the brokers of an instance of flux-core put what others need to know of them, wait
until all have done so (a barrier), and get what the others have put. Each task has a socket of its
own, whose number is in `PMI_FD`. Some values are there from the start: `Start.pmi` has them.

Each socket takes a descriptor of the host while its task runs. If a job has more tasks than there
is room for, they share one socket: a task that asks there reads the end of the file, and the client
is told. Programs that look for PMI in another way, as for PMIx, are not noticed.

Left out: names that are published (`publish_name`), and `spawn`; a request for one is refused.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from flux_trio.shell.protocol import PMI_VALUE_CHARS_MAX

# Of all jobs that run together. The host has a thousand descriptors, and needs more for a launch.
SOCKETS_MAX: Final = 256
NAME_CHARS_MAX: Final = 64  # RFC 13 leaves the bounds to the server; these are flux-core's
KEY_CHARS_MAX: Final = 64
LINE_BYTES_MAX: Final = NAME_CHARS_MAX + KEY_CHARS_MAX + PMI_VALUE_CHARS_MAX + 64
VALUES_MAX: Final = 4096  # that the tasks of one job have put
FAIL: Final = "rc=-1"


class PmiError(Exception):
    """A task has broken the protocol; its socket is closed."""


class PmiJob:
    """What the tasks of one job have told each other; pure."""

    def __init__(self, name: str, ntasks: int, values: Mapping[str, str]) -> None:
        self._name = name
        self._ntasks = ntasks
        self._values = dict(values)
        self._at_barrier: set[int] = set()

    def answer(self, taskid: int, line: str) -> list[tuple[int, str]]:
        """Return the lines that follow from the line of a task, and for which task each is.

        Raises PmiError.
        """
        command, keys = _parsed(line)
        match command:
            case "init":
                fits = keys.get("pmi_version") == "1" and keys.get("pmi_subversion", "") >= "1"
                rc = "rc=0 pmi_version=1 pmi_subversion=1" if fits else FAIL
                reply = f"response_to_init {rc}"
            case "get_maxes":
                reply = (
                    f"maxes rc=0 kvsname_max={NAME_CHARS_MAX} keylen_max={KEY_CHARS_MAX} "
                    f"vallen_max={PMI_VALUE_CHARS_MAX}"
                )
            case "get_universe_size":
                reply = f"universe_size rc=0 size={self._ntasks}"
            case "get_appnum":
                reply = "appnum rc=0 appnum=0"
            case "get_my_kvsname":
                reply = f"my_kvsname rc=0 kvsname={self._name}"
            case "put":
                reply = f"put_result {'rc=0' if self._put(keys) else FAIL}"
            case "get":
                value = self._values.get(keys.get("key", ""))
                is_known = value is not None and keys.get("kvsname") == self._name
                reply = f"get_result {f'rc=0 value={value}' if is_known else FAIL}"
            case "barrier_in":
                return self._enter(taskid)
            case "finalize":
                reply = "finalize_ack rc=0"
            case "publish_name" | "unpublish_name" | "lookup_name":
                kind = command.partition("_")[0]
                reply = f"{kind}_result {FAIL} msg=there are no names here"
            case _:
                raise PmiError(f"expected a command of PMI-1, got {line[:80]!r}")
        return [(taskid, f"cmd={reply}\n")]

    def _put(self, keys: Mapping[str, str]) -> bool:
        key, value = keys.get("key", ""), keys.get("value")
        if not key or value is None or keys.get("kvsname") != self._name:
            return False
        if len(key) > KEY_CHARS_MAX or len(value) > PMI_VALUE_CHARS_MAX:
            return False
        if key not in self._values and len(self._values) >= VALUES_MAX + self._ntasks:
            return False
        self._values[key] = value
        return True

    def _enter(self, taskid: int) -> list[tuple[int, str]]:
        self._at_barrier.add(taskid)
        if len(self._at_barrier) < self._ntasks:
            return []
        inside, self._at_barrier = sorted(self._at_barrier), set()
        return [(each, "cmd=barrier_out rc=0\n") for each in inside]


def _parsed(line: str) -> tuple[str, dict[str, str]]:
    """Return the command of a line and its keys; a value is the rest of the line. PmiError."""
    keys = {}
    words, is_put, value = line.partition(" value=")
    for word in words.split():
        key, is_key, text = word.partition("=")
        if is_key:
            keys[key] = text
    if is_put:
        keys["value"] = value
    if "cmd" not in keys:
        raise PmiError(f"expected cmd=, got {line[:80]!r}")
    return keys["cmd"], keys


class PmiServer:
    """One job's sockets, and what its tasks say there.

    With `is_shared` there was no room for a socket of each task.
    """

    def __init__(self, jobid: int, job: PmiJob, *, is_shared: bool) -> None:
        self.jobid = jobid
        self.is_shared = is_shared
        self._job = job
        self._ours: dict[int, socket.socket] = {}  # by task
        self._lines: dict[int, bytes] = {}  # what has come of a line, by task

    def add(self, taskid: int, ours: socket.socket) -> None:
        ours.setblocking(False)
        self._ours[taskid] = ours
        self._lines[taskid] = b""

    def readable(self, taskid: int) -> bool:
        """Read what a task has said, and answer; return False if its socket is closed now."""
        try:
            data = self._ours[taskid].recv(LINE_BYTES_MAX)
            *lines, rest = (self._lines[taskid] + data).split(b"\n")
            if not data or len(rest) > LINE_BYTES_MAX:
                raise PmiError("expected a line")
            self._lines[taskid] = rest
            for line in lines:
                for whom, reply in self._job.answer(taskid, line.decode()):
                    self._send(whom, reply)
        except (PmiError, OSError, UnicodeDecodeError):
            self._ours.pop(taskid).close()
            return False
        return True

    def _send(self, taskid: int, reply: str) -> None:
        """Send a line; a task that has ended, or does not read, is not waited for."""
        if taskid in self._ours:
            with suppress(OSError):
                self._ours[taskid].send(reply.encode())


class PmiSockets:
    """The host's ends of all sockets; those in `came` and `shared` are for the host to watch."""

    def __init__(self) -> None:
        self.came: list[tuple[PmiServer, int, socket.socket]] = []  # the int is the task
        self.shared: list[tuple[int, socket.socket]] = []  # with the job's id
        self._nopen = 0

    def server(
        self, jobid: int, name: str, ntasks: int, values: Mapping[str, str] | None
    ) -> PmiServer | None:
        """Return the server of a new job; None if its tasks have no PMI."""
        if values is None:
            return None
        is_shared = self._nopen + ntasks > SOCKETS_MAX
        return PmiServer(jobid, PmiJob(name, ntasks, values), is_shared=is_shared)

    def pair(self) -> tuple[socket.socket, socket.socket] | None:
        """Return our end and theirs of a new socket; None without room."""
        if self._nopen < SOCKETS_MAX:
            with suppress(OSError):  # no descriptor is left, as the launch will notice
                pair = socket.socketpair()
                self._nopen += 1
                return pair
        return None

    def closed(self) -> None:
        """Note that a socket of the host is closed."""
        self._nopen -= 1

    def asked(self, ours: socket.socket) -> bool:
        """Close a shared socket, which is readable; return whether a task has asked."""
        self.closed()
        with ours:
            return bool(ours.recv(1))


class TaskSockets:
    """Gives a socket to each task of a job that is launched in the block."""

    def __init__(self, sockets: PmiSockets, server: PmiServer | None) -> None:
        self._sockets = sockets
        self._server = server
        self._theirs: socket.socket | None = None

    def __enter__(self) -> TaskSockets:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        """Close our copy of the end that a launched task has."""
        if self._theirs is not None:
            self._theirs.close()
            self._theirs = None

    def of_task(self, taskid: int) -> int | None:
        """Return the descriptor for a task that is launched now; None if it gets none."""
        server = self._server
        if server is None:
            return None
        if self._theirs is None or not server.is_shared:
            self._close()
            pair = self._sockets.pair()
            if pair is None:
                return None
            ours, self._theirs = pair
            if server.is_shared:
                self._sockets.shared.append((server.jobid, ours))
            else:
                server.add(taskid, ours)
                self._sockets.came.append((server, taskid, ours))
        return self._theirs.fileno()


def variables(descriptor: int | None, taskid: int, ntasks: int) -> dict[str, str]:
    """Return the variables by which a program finds PMI."""
    if descriptor is None:
        return {}
    return {"PMI_FD": str(descriptor), "PMI_RANK": str(taskid), "PMI_SIZE": str(ntasks)}
