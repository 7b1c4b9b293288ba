"""How many examples property tests try, and where they find the small worlds of the unit tests."""

import sys
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""As many examples as hypothesis tries by itself, however long a busy machine takes for one."""
settings.register_profile("quick", settings.get_profile("full"), max_examples=25)
"""For `make check`."""
settings.register_profile("found", settings.get_profile("quick"), phases=[Phase.explicit, Phase.generate])
"""For scripts/mutate, which only asks whether an example fails."""
settings.load_profile("full")  # unless --hypothesis-profile names another one, which comes later

for folder in ("", "fallback", "guests", "vrc"):
    sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / folder))
