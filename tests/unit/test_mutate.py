"""scripts/mutate kills a change by tests that fail with it, and by nothing else."""

import sys
from collections import Counter
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


def test_a_change_is_tried_first_with_tests_that_run_little_and_last_with_property_tests(mutate: ModuleType) -> None:
    path = Path("controller/routing/rib.py")
    mutant = mutate.Mutant(path, 1, 7, 8, "constant: 0")
    property_test, unit = "tests/property/test_a.py::test_a", [f"tests/unit/test_b.py::test_{x}" for x in range(30)]
    lines = Counter({name: number for number, name in enumerate([property_test, *reversed(unit)])})
    batches = mutate.batches_of(mutant, {(path, 7): {"", property_test}, (path, 8): set(unit)}, lines)
    assert batches == [unit[:9:-1], unit[9::-1], [property_test]]


def test_a_change_that_runs_before_any_test_is_tried_with_all_but_those_of_mutate(mutate: ModuleType) -> None:
    path, unit = Path("controller/routing/rib.py"), "tests/unit/test_b.py::test_b"
    mutant = mutate.Mutant(path, 1, 7, 7, "constant: 0")
    batches = mutate.batches_of(mutant, {(path, 7): {""}, (path, 9): {"", unit}}, Counter({unit: 1}))
    assert batches == [[unit], mutate.OTHERS, ("tests/property",)]
    assert "--ignore=tests/unit/test_mutate.py" in mutate.OTHERS  # a run within one may not raise its limits


def test_nothing_is_tried_where_no_test_runs_what_is_changed(mutate: ModuleType) -> None:
    mutant = mutate.Mutant(Path("controller/routing/rib.py"), 1, 7, 7, "constant: 0")
    assert mutate.batches_of(mutant, {}, Counter()) == []
