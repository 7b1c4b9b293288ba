"""The forwarder's own tests, under AddressSanitizer and UndefinedBehaviorSanitizer."""

from typing import Any

import pytest
from builds import listed_in, run

BUILD = "forwarder-sanitized"


@pytest.mark.root
@pytest.mark.parametrize("test", listed_in(BUILD))
def test_sanitized(test: dict[str, Any]) -> None:
    run(BUILD, test)
