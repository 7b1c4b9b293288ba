"""The figures of docs/fairness.md, drawn from the result of bench/fairness as SVG, as the papers draw theirs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.commands import NetworkError

_BY_RATE = ("arrivals-40-60", "queue-each", "arrivals-1-2", "rates-3-2-1")
_OVERLOAD = 2.0
_MPPS = 1e-6


def drawing(directory: Path) -> Callable[[dict[str, Any]], None]:
    """Return what draws a result into a directory. NetworkError where matplotlib is not there."""
    try:
        import matplotlib  # the bench measures without it
    except ImportError:
        raise NetworkError("matplotlib is missing; run: apt-get install python3-matplotlib") from None
    matplotlib.use("svg")
    # The same figures are the same files, without ids by chance, without fonts drawn as lines.
    matplotlib.rcParams.update({"svg.hashsalt": "splitplane", "svg.fonttype": "none", "font.size": 9})
    directory = directory.absolute()
    return lambda result: _draw(result["cases"], directory)


def _draw(cases: list[dict[str, Any]], directory: Path) -> None:
    by_name: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        by_name.setdefault(case["name"], []).append(case)
    directory.mkdir(parents=True, exist_ok=True)
    for name in _BY_RATE:
        if name in by_name:
            _rates(by_name[name], directory / f"fairness-{name}.svg")
    _errors(by_name, directory / "fairness-errors.svg")
    _shares(by_name, directory / "fairness-shares.svg")


def _rates(loads: list[dict[str, Any]], path: Path) -> None:
    """What each router forwards of what all are offered: without shares, ideally, and with them."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(10, 3), sharey=True, layout="constrained")
    # What a router is entitled to, as packets that it forwards: no more than come, and as its part of the core
    # allows.
    kinds = (("without shares", _without), ("entitled", _entitled), ("with shares", lambda load: load["routers"]))
    for panel, (title, routers_of) in zip(panels, kinds, strict=True):
        for place, weight in enumerate(loads[0]["weights"]):
            all_offered = [sum(router["offered"] for router in load["routers"]) * _MPPS for load in loads]
            forwarded = [routers_of(load)[place]["forwarded"] * _MPPS for load in loads]
            panel.plot(all_offered, forwarded, marker="o", label=f"router {place + 1}, weight {weight:g}")
        panel.set_title(title)
        panel.set_xlabel("offered to all, Mpps")
        panel.grid(alpha=0.3)
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("forwarded, Mpps")
    panels[0].legend()
    _save(figure, path)


def _without(load: dict[str, Any]) -> list[dict[str, Any]]:
    routers: list[dict[str, Any]] = load["without"]["routers"]
    return routers


def _entitled(load: dict[str, Any]) -> list[dict[str, float]]:
    found = []
    for router, cost_ns in zip(load["routers"], load["costs_ns"], strict=False):
        found.append({"forwarded": min(router["offered"], router["entitled"] / (cost_ns * 1e-9))})
    return found


def _errors(by_name: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """How far the worst router is off, by load, without shares (dashed) and with them."""
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, loads in by_name.items():
        at = [load["load"] for load in loads]
        (line,) = panel.plot(at, [100 * load["error"] for load in loads], marker="o", label=name)
        without = [100 * load["without"]["error"] for load in loads]
        panel.plot(at, without, linestyle="--", alpha=0.5, color=line.get_color())
    panel.set_xlabel("load: what all packets cost of what there is")
    panel.set_ylabel("largest error of a share, % of the whole")
    panel.set_yscale("log")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=7)
    _save(figure, path)


def _shares(by_name: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """What six weights and two costs come to at twice what there is."""
    import matplotlib.pyplot as plt

    wanted = [
        (name, load)
        for name in ("six-weights", "costs", "million-routes", "slices")
        for load in by_name.get(name, ())
        if load["load"] == _OVERLOAD
    ]
    if not wanted:
        return
    figure, panels = plt.subplots(1, len(wanted), figsize=(2.5 * len(wanted), 3), squeeze=False, layout="constrained")
    for panel, (name, load) in zip(panels[0], wanted, strict=True):
        places = range(1, len(load["routers"]) + 1)
        panel.bar(places, [router["cpu_share"] for router in load["routers"]], width=0.6, label="had")
        entitled = [router["entitled"] for router in load["routers"]]
        panel.plot(places, entitled, linestyle="", marker="_", markersize=18, color="black", label="entitled to")
        panel.set_title(name)
        panel.set_xticks(list(places))
        panel.set_xlabel("router")
    panels[0][0].set_ylabel("part of the core")
    panels[0][0].legend(fontsize=7)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
