"""Where property tests find the small worlds of the unit tests, and what makes their messages."""

import sys
from pathlib import Path

for folder in ("core", "guests", "placement", "vrc"):
    sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / folder))
