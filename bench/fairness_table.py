"""The table of docs/fairness.md, from the result of bench/fairness."""

from collections.abc import Callable
from typing import Any

_Case = dict[str, Any]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


_COLUMNS: dict[str, Callable[[_Case], str]] = {
    "case": lambda case: case["name"],
    "load": lambda case: f"{case['load']:g}",
    "reached": lambda case: f"{case['reached']:.2f}",
    "error without shares, %": lambda case: _percent(case["without"]["error"]),
    "error, %": lambda case: _percent(case["error"]),
    "victim loss, %": lambda case: _percent(case["victim_loss"]),
    "victim p99, us": lambda case: _number(case["victim_p99_us"]),
    "converged, ms": lambda case: _number(case["converge_ms"]),
    "aggregate": lambda case: _ratio(case["aggregate_ratio"]),
    "idle, %": lambda case: _percent(case["idle"]),
}


def table(result: dict[str, Any]) -> str:
    """Return a row for each case and load, in Markdown; nothing stands for what there was none of."""
    rows = [list(_COLUMNS), ["---"] * len(_COLUMNS)]
    rows += [[column(case) for column in _COLUMNS.values()] for case in result["cases"]]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
