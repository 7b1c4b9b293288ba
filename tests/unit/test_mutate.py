"""scripts/mutate kills a change by tests that fail with it, and by nothing else."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mutate() -> ModuleType:
    loader = SourceFileLoader("mutate", str(ROOT / "scripts" / "mutate"))
    spec = spec_from_loader("mutate", loader)
    assert spec is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "mutate", module)  # where dataclasses look for their module
        patched.setattr("sys.dont_write_bytecode", True)
        loader.exec_module(module)
    return module


def test_unit_tests_alone_pass_without_a_change(mutate: ModuleType) -> None:
    done = mutate.run(ROOT, ("tests/unit/test_destinations.py",), mutate.UNCHANGED)
    assert done.returncode == 0, done.stdout


def test_a_pytest_that_does_not_work_kills_nothing(mutate: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"^mutate: pytest does not work: .*\n"):
        mutate.run(ROOT, ("--hypothesis-profile=none", "tests/unit/test_destinations.py"), mutate.UNCHANGED)


def test_limits_are_longer_on_a_busy_machine(mutate: ModuleType) -> None:
    assert mutate.Limits.beside(60.0, 50.0) == mutate.Limits(30.0, 600.0, 120.0)
    assert mutate.Limits.beside(400.0, 100.0) == mutate.Limits(100.0, 800.0, 200.0)
