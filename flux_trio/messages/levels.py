"""syslog severities of Flux's log messages (RFC 5424; flux-core's dmesg shows them)."""

from enum import IntEnum


class Level(IntEnum):
    """Severity; 0 is the worst."""

    EMERG = 0
    ALERT = 1
    CRIT = 2
    ERR = 3
    WARNING = 4
    NOTICE = 5
    INFO = 6
    DEBUG = 7
