"""Python imports this at its start in every process that a planted or recording test starts."""

import os
import sys
from pathlib import Path

if {"PLANTER_PLANTED", "PLANTER_RECORDS", "PLANTER_REFUSED"} & os.environ.keys():
    sys.path.append(str(Path(__file__).parents[3]))
    from tests.planter.planting import at_start

    at_start()
