"""The forwarder's own tests, as built for use."""

from typing import Any

import pytest
from builds import listed_in, run

BUILD = "forwarder"


@pytest.mark.root
@pytest.mark.parametrize("test", listed_in(BUILD))
def test_native(test: dict[str, Any]) -> None:
    run(BUILD, test)
