"""A stranger finds the way in the tree: no floor is crowded, no file is longer than one sitting."""

from pathlib import Path

import pytest

CONTROLLER = Path(__file__).parents[2] / "controller"
MOST_MODULES, MOST_AT_THE_TOP, MOST_LINES = 15, 8, 526
PACKAGES = sorted(found.parent for found in CONTROLLER.rglob("__init__.py"))


def modules(package: Path) -> list[Path]:
    """Those that somebody has to know: how a package is begun, and started, says nothing."""
    return [found for found in package.glob("*.py") if not found.name.startswith("__")]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(CONTROLLER.parent)))
def test_a_package_has_few_modules_and_none_is_long(package: Path) -> None:
    assert len(modules(package)) <= (MOST_AT_THE_TOP if package == CONTROLLER else MOST_MODULES)
    assert {found.name for found in modules(package) if len(found.read_text().splitlines()) > MOST_LINES} == set()
