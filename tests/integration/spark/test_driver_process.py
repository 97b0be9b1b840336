"""Processes beside the driver end with it, and its reads find each other: both need the id of its process."""

from __future__ import annotations

import subprocess
import sys

from tests.apps.driver_of_planner import seen_and_real
from tests.apps.process import ROOT


def test_a_planner_that_sparks_daemon_has_forked_knows_its_driver(spark):
    seen, real = seen_and_real(spark)
    assert seen == real


def test_a_planner_that_the_driver_has_started_itself_knows_its_driver():
    command = [sys.executable, "-m", "tests.apps.driver_of_planner", "false"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    seen, real = done.stdout.split()[-2:]
    assert seen == real
