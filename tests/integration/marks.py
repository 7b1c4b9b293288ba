"""Marks of tests that need what not every machine has."""

import shutil

import pytest

from lab.planes.bmv2 import PROGRAM

MISSING = f"{PROGRAM} is not on PATH; p4lang documents how to install BMv2"
needs_bmv2 = pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=MISSING)
