"""Numbers of the signals that the exec service sends (signal(7))."""

from typing import Final

SIGKILL: Final = 9
SIGUSR1: Final = 10
SIGALRM: Final = 14  # at the time limit, as flux-core does
SIGTERM: Final = 15
