"""syslog severities, as Flux's log messages carry them (RFC 5424, as flux-core's dmesg shows)."""

from enum import IntEnum


class Level(IntEnum):
    """How bad it is, 0 the worst."""

    EMERG = 0
    ALERT = 1
    CRIT = 2
    ERR = 3
    WARNING = 4
    NOTICE = 5
    INFO = 6
    DEBUG = 7
