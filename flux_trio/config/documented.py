"""The keys of flux-core's configuration, and what each means here.

A site can start an instance with the file that it has. A key that has no counterpart here is
ignored with a warning that says why; a key that would mean something else here is refused. The
names are those of flux-config(5), its pages and the administrator's guide of flux-core 0.88.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Used(msgspec.Struct, frozen=True):
    """The key means what it means in flux-core."""


class Ignored(msgspec.Struct, frozen=True):
    """The key has no meaning here.

    `why` completes "ignored: ". `keys` are the documented keys of a table that is ignored as a
    whole; None if the table has keys of others, which are not checked.
    """

    why: str
    keys: tuple[str, ...] | None = None


class Refused(msgspec.Struct, frozen=True):
    """The instance would do something else than the key says; `why` says what it expects."""

    why: str


Meaning = Used | Ignored | Refused

USED: Final = Used()
HARDWARE_PLUGINS: Final = ("cray-slingshot.so", "dws-jobtap.so")  # jobtap plugins of flux-coral2
_OWNER: Final = "all jobs run as the owner of the instance, without the IMP"
_OTHER_FILE: Final = "it belongs into the configuration of flux-security or of the IMP"
_NETWORK: Final = "the instance is one process, without an overlay network"
_SYSTEMD: Final = "processes of jobs run below the shell host, not in units of systemd"
_UNKILLABLE: Final = "a job keeps its resources until its last process is gone"
_SHELL: Final = "the shell host runs the tasks of a job, no job shell"
_INGEST: Final = "job-ingest checks every jobspec itself, and always"
_STORE: Final = "the store is one SQLite file, durable at every commit"
_HERE: Final = "the processes of all targets run on this machine"
_SCRIPTS: Final = "there are no scripts of the IMP, which the key is for"
_SCHEDULERS: Final = "the scheduler is this project's own: see [sched]"
_OLD_FLUXION: Final = "fluxion reads [sched-fluxion-resource] and the like"
HARDWARE: Final = "only flux-coral2 can serve this hardware"
_MODULES: Final = "it configures modules of flux-core that are not here"

DOCUMENTED: Final[dict[str, Meaning]] = {
    "access.allow-guest-user": USED,
    "access.allow-root-owner": USED,
    "access.private-mode": USED,
    "access.roles": Ignored("guests have the rights of guests, and no role gives them more"),
    "accounting": Ignored(_MODULES),
    "archive": Ignored(_MODULES),
    "bootstrap": Ignored(
        _NETWORK,
        ("curve_cert", "default_bind", "default_connect", "default_port", "enable_ipv6", "hosts"),
    ),
    "content": Ignored(_STORE),
    "content-sqlite": Ignored(_STORE),
    "cray-slingshot": Ignored(HARDWARE),
    "cron": Ignored(_MODULES),
    "exec.allowed-shells": Ignored(_OTHER_FILE),
    "exec.allowed-users": Ignored(_OTHER_FILE),
    "exec.barrier-timeout": Ignored(_SHELL),
    "exec.imp": Ignored(_OWNER),
    "exec.job-shell": Ignored(_SHELL),
    "exec.kill-signal": Ignored("the signal is SIGKILL"),
    "exec.kill-timeout": USED,
    "exec.max-kill-count": Ignored(_UNKILLABLE),
    "exec.max-kill-timeout": Ignored(_UNKILLABLE),
    "exec.max-start-delay-percent": Ignored(
        "a job ends when its R expires, however late it has started"
    ),
    "exec.method": Ignored(_SHELL),
    "exec.pam-support": Ignored(_OTHER_FILE),
    "exec.sdexec-constrain-resources": Ignored(_SYSTEMD),
    "exec.sdexec-properties": Ignored(_SYSTEMD),
    "exec.sdexec-stop-timer-sec": Ignored(_SYSTEMD),
    "exec.sdexec-stop-timer-signal": Ignored(_SYSTEMD),
    "exec.service": Ignored(_SHELL),
    "exec.service-override": Ignored(_SHELL),
    "exec.shell-exit-timeout": Ignored(_SHELL),
    "exec.term-signal": Ignored("the signal is SIGTERM"),
    "exec.testexec": Ignored("simulated jobs are those of [exec] simulate", ("allow-guests",)),
    "fake-resources.amend-r": Refused("resources without an amender: R is made of the numbers"),
    "fake-resources.cores-per-node": USED,
    "fake-resources.gpus-per-node": USED,
    "fake-resources.host-prefix": USED,
    "fake-resources.hwloc-xml-path": Refused("cores-per-node and gpus-per-node: no XML is read"),
    "fake-resources.nnodes": USED,
    "fluxion": Ignored(_OLD_FLUXION),
    "fluxion-qmanager": Ignored(_OLD_FLUXION),
    "fluxion-resource": Ignored(_OLD_FLUXION),
    "heartbeat": Ignored(_NETWORK, ("period", "timeout", "warn_thresh")),
    "ingest.batch-count": Ignored(_INGEST),
    "ingest.buffer-size": Ignored(_INGEST),
    "ingest.frobnicator": Ignored(_INGEST, ("disable", "plugins", "args")),
    "ingest.validator.args": Ignored(_INGEST),
    "ingest.validator.disable": Ignored(_INGEST),
    "ingest.validator.plugins": USED,
    "job-list": Ignored(_MODULES),
    "job-manager.epilog.cancel-on-exception": USED,
    "job-manager.epilog.command": USED,
    "job-manager.epilog.exit-on-first-error": Ignored(_SCRIPTS),
    "job-manager.epilog.kill-timeout": USED,
    "job-manager.epilog.per-rank": USED,
    "job-manager.epilog.timeout": USED,
    "job-manager.housekeeping.command": USED,
    "job-manager.housekeeping.exit-on-first-error": Ignored(_SCRIPTS),
    "job-manager.housekeeping.per-rank": Ignored("it always runs once for each rank"),
    "job-manager.housekeeping.release-after": USED,
    "job-manager.housekeeping.use-systemd-unit": Ignored(_SYSTEMD),
    "job-manager.inactive-age-limit": USED,
    "job-manager.inactive-num-limit": USED,
    "job-manager.journal-size-limit": Ignored("the job manager keeps no journal in memory"),
    "job-manager.perilog.log-ignore": USED,
    "job-manager.plugins": USED,
    "job-manager.prolog.cancel-on-exception": USED,
    "job-manager.prolog.command": USED,
    "job-manager.prolog.exit-on-first-error": Ignored(_SCRIPTS),
    "job-manager.prolog.kill-timeout": USED,
    "job-manager.prolog.per-rank": USED,
    "job-manager.prolog.timeout": USED,
    "job-manager.stop-queues-on-restart": USED,
    "kvs.checkpoint-period": Ignored(_STORE),
    "kvs.gc-threshold": Ignored(_STORE),
    "modules": Ignored(_MODULES),
    "pam": Ignored(_OWNER),
    "policy.access": USED,
    "policy.jobspec": USED,
    "policy.limits": USED,
    "policy.scheduler": USED,
    "queues.*.parent": USED,
    "queues.*.policy": USED,
    "queues.*.requires": USED,
    "rabbit": Ignored(HARDWARE),
    "resource.config": USED,
    "resource.exclude": USED,
    "resource.history": Ignored("resource.eventlog is kept whole"),
    "resource.journal-max": Ignored("there is no resource.journal"),
    "resource.norestrict": Ignored(_HERE),
    "resource.noverify": USED,
    "resource.path": USED,
    "resource.rediscover": USED,
    "resource.reserve": Ignored(_HERE),
    "resource.scheduling": Ignored("the scheduler reads no hints in R"),
    "resource.verify": USED,
    "run": Ignored(_OTHER_FILE),
    "sched-fluxion-feasibility": USED,
    "sched-fluxion-qmanager": USED,
    "sched-fluxion-resource": USED,
    "sched-simple": Ignored(_SCHEDULERS),
    "sdexec": Ignored(_SYSTEMD, ("mapper", "mapper-searchpath")),
    "sign": Ignored(_OTHER_FILE),
    "systemd": Ignored(_SYSTEMD, ("enable", "sdbus-debug", "sdexec-debug")),
    "tbon": Ignored(
        _NETWORK,
        (
            "child_rcvhwm",
            "connect_timeout",
            "interface-hint",
            "tcp_user_timeout",
            "topo",
            "torpid_max",
            "torpid_min",
            "zmq_io_threads",
            "zmqdebug",
        ),
    ),
}
"""By path: `*` is any name of a queue. The tables of the framework's other projects are there, too:
flux-accounting, flux-coral2, flux-pam, flux-sched and flux-security."""
