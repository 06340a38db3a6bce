"""RFC 32: one job between job manager and execution service, and their link.

The execution service begins:

    service      exec-hello         → nothing: start requests may come; an error ends the service
    job manager  <service>.start    → start, when the shells run
                                    → exception, as often as there is one, before finish
                                    → finish, with the job's status
                                    → release of some ranks, and of the last ones with `final`

The responses of one start end with the final release; a job that fails before it runs may have an
exception and the final release only. If either side leaves, its successor is told again: a service
gets the start of each job that is not over, with `reattach` if the job has started, and a job
manager gets all responses in answer to that. A disconnect or an error response ends the link.

`EXECUTION` follows one start request to its final release. The job manager knows which service
has the name, and decides when to send a start again (readings: Exec override). `EXEC_LINK` follows
one service from exec-hello to the loss of the job manager. A service whose hello is refused ends.
"""

from __future__ import annotations

from flux_trio.protocols.table import Conversation, Member, Table


class ExecState(Member):
    """State of one job's conversation with the execution service."""

    IDLE = "no start sent"
    STARTING = "start sent, shells not started"
    RUNNING = "shells started"
    FINISHED = "shells finished, resources not all released"
    RELEASED = "final release: end of stream"
    ABANDONED = "start sent, and the service lost that had it"


class ExecEvent(Member):
    """Messages between the two sides about one job, and their loss."""

    REQUEST = "start request"
    START = "start"
    RELEASE = "release"
    RELEASE_FINAL = "release, final"
    EXCEPTION = "exception"
    FINISH = "finish"
    LOST = "service lost"
    UNDELIVERED = "job manager lost before the end reached it"
    RESUME = "read back with resources"
    RESUME_FINISHED = "read back with resources, finished"


_S, _E = ExecState, ExecEvent

EXECUTION: Table[ExecState, ExecEvent] = Table(
    "start",
    ExecState.IDLE,
    {
        _S.IDLE: {
            _E.REQUEST: _S.STARTING,
            _E.LOST: _S.IDLE,
            _E.RESUME: _S.ABANDONED,  # a start may have been sent
            _E.RESUME_FINISHED: _S.RELEASED,
        },
        _S.STARTING: {
            _E.START: _S.RUNNING,
            _E.RELEASE: _S.STARTING,
            _E.EXCEPTION: _S.STARTING,
            _E.FINISH: _S.FINISHED,  # start may be omitted after a fatal exception
            _E.RELEASE_FINAL: _S.RELEASED,  # finish may be omitted as well
            _E.LOST: _S.ABANDONED,
        },
        _S.RUNNING: {
            _E.RELEASE: _S.RUNNING,
            _E.EXCEPTION: _S.RUNNING,
            _E.FINISH: _S.FINISHED,
            _E.RELEASE_FINAL: _S.RELEASED,
            _E.LOST: _S.ABANDONED,
        },
        _S.FINISHED: {
            _E.RELEASE: _S.FINISHED,
            _E.EXCEPTION: _S.FINISHED,
            _E.RELEASE_FINAL: _S.RELEASED,
            _E.LOST: _S.RELEASED,  # no process is left: the job manager releases the rest
        },
        # the final release is the last response
        _S.RELEASED: {
            _E.REQUEST: _S.STARTING,  # of the next job manager: it gets all responses again
            _E.LOST: _S.RELEASED,
            _E.UNDELIVERED: _S.ABANDONED,
        },
        # the next service is asked again, so that the final release still comes
        _S.ABANDONED: {
            _E.REQUEST: _S.STARTING,
            _E.LOST: _S.ABANDONED,
            _E.UNDELIVERED: _S.ABANDONED,
        },
    },
)


class ExecLinkState(Member):
    """State of an execution service's connection with the job manager."""

    SILENT = "no exec-hello sent, or it is taken back"
    ASKED = "exec-hello sent, not answered"
    ABSENT = "exec-hello met ENOSYS: there is no job manager"
    ATTACHED = "exec-hello accepted: start requests may come"


class ExecLinkEvent(Member):
    HELLO = "exec-hello"
    ACCEPTED = "exec-hello response"
    ENOSYS = "ENOSYS"
    WITHDRAWN = "disconnect sent"
    LOST = "job manager lost"


_L, _K = ExecLinkState, ExecLinkEvent

EXEC_LINK: Table[ExecLinkState, ExecLinkEvent] = Table(
    "execution service",
    ExecLinkState.SILENT,
    {
        _L.SILENT: {_K.HELLO: _L.ASKED},
        _L.ASKED: {_K.ACCEPTED: _L.ATTACHED, _K.ENOSYS: _L.ABSENT},
        _L.ABSENT: {_K.HELLO: _L.ASKED},
        _L.ATTACHED: {_K.WITHDRAWN: _L.SILENT, _K.LOST: _L.SILENT},
    },
)


class ExecLink(Conversation[ExecLinkState, ExecLinkEvent]):
    """Where an execution service and the job manager stand with each other."""

    table = EXEC_LINK
    kind = "peer"
