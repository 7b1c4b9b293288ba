"""bench/fairness draws what it measured, the same file of the same result, and writes it into a table."""

import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bench.fairness_plot import draw
from bench.fairness_table import table


def _case(name: str, load: float) -> dict[str, Any]:
    routers = [{"offered": 1e6 * load, "forwarded": 5e5, "cpu_share": 0.5, "entitled": 0.6} for _ in range(2)]
    figures: dict[str, Any] = {"error": 0.0, "routers": routers}
    figures |= {"victim_loss": None, "victim_p99_us": 80.0, "converge_ms": 20.0, "idle": 0.01}
    figures |= {"reached": load, "aggregate_ratio": 0.95}
    return {"name": name, "load": load, "weights": [2, 1], "costs_ns": [500, 500, 100], "without": figures, **figures}


def test_a_result_is_drawn(tmp_path: Path) -> None:
    result = {"cases": [_case(name, load) for name in ("arrivals-40-60", "six-weights") for load in (1.0, 2.0)]}
    for directory in ("once", "again"):
        draw(result, tmp_path / directory)
    drawn = sorted(path.name for path in (tmp_path / "once").iterdir())
    by_rate = [f"fairness-arrivals-40-60-{kind}.svg" for kind in ("ideal", "with", "without")]
    assert drawn == [*by_rate, "fairness-errors.svg", "fairness-six-weights.svg"]
    for name in drawn:
        text = (tmp_path / "once" / name).read_text()
        assert text == (tmp_path / "again" / name).read_text()
        assert not [element for element in ElementTree.fromstring(text).iter() if element.tag.endswith("script")]


def test_whoever_draws_leaves_imports_as_they_were() -> None:
    assert all(hasattr(finder, "find_spec") for finder in sys.meta_path)


def test_a_result_is_a_table() -> None:
    lines = table({"cases": [_case("slices", 2.0)]}).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2] == "| slices | 2 | 2.00 | 0.00 | 0.00 |  | 80 | 20 | 0.950 | 1.00 |"
