"""bench/fairness draws what it measured, and the same file of the same result."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bench.fairness_plot import draw


def _case(name: str, load: float) -> dict[str, Any]:
    routers = [{"offered": 1e6 * load, "forwarded": 5e5, "cpu_share": 0.5, "entitled": 0.6} for _ in range(2)]
    figures = {"error": 0.0, "routers": routers}
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
