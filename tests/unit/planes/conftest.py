"""The cases of the conformance suite, which says of every plane what becomes of a packet."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance"))
