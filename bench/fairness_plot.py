"""The figures of docs/fairness.md, drawn from the result of bench/fairness as SVG, as the papers draw theirs."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pygal
from pygal.style import CleanStyle

# It adds a finder of its plugins, which are none here, of a kind that Python warns of at each import that follows.
sys.meta_path[:] = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]

_BY_RATE = ("arrivals-40-60", "queue-each", "arrivals-1-2", "rates-3-2-1")
_DIVIDED = ("six-weights", "costs", "million-routes", "slices")
_OVERLOAD = 2.0
_MPPS = 1e-6
_LEAST_ERROR = 0.01  # %: what is less is drawn so on a logarithmic axis

_Cases = list[dict[str, Any]]


def draw(result: dict[str, Any], directory: Path) -> None:
    """Draw what a result has into a directory; the same result makes the same files."""
    by_name: dict[str, _Cases] = {}
    for case in result["cases"]:
        by_name.setdefault(case["name"], []).append(case)
    directory.mkdir(parents=True, exist_ok=True)
    for name in _BY_RATE:
        for kind, routers_of in _KINDS.items():
            if name in by_name:
                _rates(f"{name}: {kind}", by_name[name], routers_of, directory / f"fairness-{name}-{kind}.svg")
    _errors(by_name, directory / "fairness-errors.svg")
    for name in _DIVIDED:
        for case in by_name.get(name, ()):
            if case["load"] == _OVERLOAD:
                _divided(case, directory / f"fairness-{name}.svg")


def _rates(title: str, loads: _Cases, routers_of: Callable[[dict[str, Any]], _Cases], path: Path) -> None:
    """What each router forwards of what all are offered."""
    chart = _chart(pygal.XY, title, "offered to all, Mpps", "forwarded, Mpps")
    for place, weight in enumerate(loads[0]["weights"]):
        points = []
        for load in loads:
            offered = sum(router["offered"] for router in load["routers"])
            points.append((offered * _MPPS, routers_of(load)[place]["forwarded"] * _MPPS))
        chart.add(f"router {place + 1}, weight {weight:g}", points)
    _save(chart, path)


def _with(load: dict[str, Any]) -> _Cases:
    routers: _Cases = load["routers"]
    return routers


def _without(load: dict[str, Any]) -> _Cases:
    routers: _Cases = load["without"]["routers"]
    return routers


def _ideal(load: dict[str, Any]) -> _Cases:
    """As packets what each is entitled to, were drops for nothing: no more than come, and as its part of the core
    allows."""
    pairs = zip(load["routers"], load["costs_ns"], strict=False)  # the last cost is that of a drop
    return [
        {"forwarded": min(router["offered"], router["entitled"] * 1e9 / cost_ns)} for router, cost_ns in pairs
    ]


_KINDS = {"without": _without, "ideal": _ideal, "with": _with}


def _errors(by_name: dict[str, _Cases], path: Path) -> None:
    """How far the worst router of each case is off at twice what there is: with shares, and without."""
    loads = {name: load for name, cases in by_name.items() for load in cases if load["load"] == _OVERLOAD}
    if not loads:
        return
    chart = _chart(
        pygal.HorizontalBar,
        f"error of the worst router at a load of {_OVERLOAD:g}",
        "% of the whole, logarithmic",
        "",
        logarithmic=True,
        range=(_LEAST_ERROR, 100),
        zero=_LEAST_ERROR,
        y_labels=[_LEAST_ERROR, 0.1, 1, 10, 100],
        value_formatter=lambda percent: f"{percent:g}",
        height=80 + 40 * len(loads),
    )
    names = sorted(loads, key=lambda name: loads[name]["error"])
    chart.x_labels = names
    for title, found in (
        ("with shares", [loads[name] for name in names]),
        ("without shares", [loads[name]["without"] for name in names]),
    ):
        chart.add(title, [max(_LEAST_ERROR, 100 * one["error"]) for one in found])
    _save(chart, path)


def _divided(case: dict[str, Any], path: Path) -> None:
    """What routers had of the core, beside what they were entitled to."""
    chart = _chart(pygal.Bar, f"{case['name']} at a load of {case['load']:g}", "router", "part of the core")
    chart.x_labels = [str(place) for place in range(1, len(case["routers"]) + 1)]
    for title, routers, key in (
        ("without shares", _without(case), "cpu_share"),
        ("with shares", _with(case), "cpu_share"),
        ("entitled to", _with(case), "entitled"),
    ):
        chart.add(title, [router[key] for router in routers])
    _save(chart, path)


def _chart(kind: Any, title: str, x_title: str, y_title: str, **options: Any) -> Any:
    options = {"width": 640, "height": 400, "legend_at_bottom": True, "dots_size": 2} | options
    chart = kind(title=title, x_title=x_title, y_title=y_title, style=CleanStyle, **options)
    chart.uuid = title.replace(" ", "-").replace(":", "")  # else one by chance
    chart.add_xml_filter(_without_scripts)
    return chart


def _without_scripts(root: Any) -> Any:
    """A figure is read, not run; and what it would run lies on a server."""
    for element in list(root.iter()):
        for child in list(element):
            if str(child.tag).endswith("script"):
                element.remove(child)
    return root


def _save(chart: Any, path: Path) -> None:
    path.write_text(chart.render(is_unicode=True))
