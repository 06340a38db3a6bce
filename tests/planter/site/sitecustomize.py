"""Python imports this at its start in every process that a test starts with this PYTHONPATH."""

import os
import sys
from pathlib import Path

VARIABLES = {"PLANTER_PLANTED", "PLANTER_RECORDS", "PLANTER_REFUSED", "PLANTER_REBORN"}
if VARIABLES & os.environ.keys():
    sys.path.append(str(Path(__file__).parents[3]))
    from tests.planter.planting import at_start

    at_start()
