"""What `vrctl top` says: the rates between two looks at the load, and the lines that show them."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from controller.vrctl.output import titles_of

Load = dict[str, Any]
"""What the API says: counts that grow (`LoadView`)."""

_LEAST_NAME = 6
_GAP = 2
_PLANES = ("plane", "packets_per_s", "in_hardware", "ipv4_table", "ipv6_table", "changes_per_s")
_LOST = ("lost_punts_of", "interface", "class", "place", "packets_per_s", "packets")
_SHARES = ("share_of", "plane", "core_ms_per_s", "over_core_per_s", "over_link_per_s", "over_share")
_FRAMES = ("lost_frames_of", "port", "place", "loss", "frames_per_s", "frames")
_ROUTERS = ("router", "plane", "packets_per_s", "in_hardware", "entries", "changes_per_s", "loop_ms_per_s")


def rates(before: Load, after: Load) -> dict[str, Any]:
    """Return what has passed in each second between two looks, most packets first.

    None stands for what is not known: the rate of what has just come or begun to count anew, and the share in
    hardware where there is no fallback or no packet.
    """
    known = {one["name"]: one for one in before["planes"]}
    planes = [
        {
            "plane": one["name"],
            **_rates(known.get(one["name"], {}), one),
            "tables": one["tables"],
            "tells_lost_punts": one["tells_lost_punts"],
        }
        for one in after["planes"]
    ]
    known = {one["router"]: one for one in before["routers"]}
    routers = [
        {
            "router": one["router"],
            "plane": one["plane"],
            **_rates(known.get(one["router"], {}), one),
            "entries": one["entries"],
            "loop_ms_per_s": _loop_ms(known.get(one["router"], {}), one),
        }
        for one in after["routers"]
    ]
    shares = [row for one in after["routers"] for row in _shares(known.get(one["router"], {}), one)]
    lost = [row for one in after["routers"] for row in _lost(known.get(one["router"], {}), one)]
    known = {one["name"]: one for one in before["planes"]}
    frames = [row for one in after["planes"] for row in _lost_frames(known.get(one["name"], {}), one)]
    return {
        "planes": sorted(planes, key=lambda row: (-(row["packets_per_s"] or 0), row["plane"])),
        "routers": sorted(routers, key=lambda row: (-(row["packets_per_s"] or 0), row["router"])),
        "shares": sorted(shares, key=lambda row: (-(row["core_ms_per_s"] or 0), row["router"])),
        "lost_punts": sorted(lost, key=lambda row: (-(row["packets_per_s"] or 0), -row["packets"], row["router"])),
        "lost_frames": sorted(frames, key=lambda row: (-(row["frames_per_s"] or 0), -row["frames"], row["plane"])),
    }


def _shares(before: Load, after: Load) -> Iterator[dict[str, Any]]:
    """Yield what a router has had of a plane's cores and links, where that is told."""
    now, then = after.get("shares"), before.get("shares") or {}
    if now is None:
        return
    seconds = after["time"] - before.get("time", after["time"])
    grown = {key: None if seconds <= 0 or (more := _grown(then, now, key)) is None else more / seconds for key in now}
    core_ns = grown["core_ns"]
    yield {
        "router": after["router"],
        "plane": after["plane"],
        "core_ms_per_s": None if core_ns is None else core_ns / 1e6,
        "over_core_per_s": grown["over_share_core"],
        "over_link_per_s": grown["over_share_link"],
        "over_share": now["over_share_core"] + now["over_share_link"],
    }


def _lost(before: Load, after: Load) -> Iterator[dict[str, Any]]:
    """Yield what of a router's punts was lost, by interface, class and place."""
    known = {_whose(one): one["packets"] for one in before.get("lost_punts", ())}
    for one in after["lost_punts"]:
        rate = _rate(before, after, one["packets"] - known.get(_whose(one), 0))
        yield {"router": after["router"], **one, "packets_per_s": rate}


def _lost_frames(before: Load, after: Load) -> Iterator[dict[str, Any]]:
    """Yield what a plane's ports have lost, by port, place and loss. It has no rate where the plane was away."""
    known = {_where(one): one["frames"] for one in before.get("lost_frames", ())}
    told = before.get("packets") is not None
    for one in after["lost_frames"]:
        rate = _rate(before, after, one["frames"] - known.get(_where(one), 0)) if told else None
        yield {"plane": after["name"], **one, "frames_per_s": rate}


def _rate(before: Load, after: Load, more: int) -> float | None:
    seconds = after["time"] - before.get("time", after["time"])
    return None if seconds <= 0 or more < 0 else more / seconds


def _where(lost: Load) -> tuple[str, str, str]:
    return lost["port"], lost["place"], lost["loss"]


def _whose(lost: Load) -> tuple[str, str, str]:
    return lost["interface"], lost["punt_class"], lost["place"]


def _rates(before: Load, after: Load) -> dict[str, float | None]:
    seconds = after["time"] - before.get("time", after["time"])
    packets, link, changes = (_grown(before, after, key) for key in ("packets", "link_packets", "changes"))
    share = None
    if packets and link is not None:
        share = max(0.0, 1 - link / packets)
    return {
        "packets_per_s": None if packets is None or seconds <= 0 else packets / seconds,
        "in_hardware": share,
        "changes_per_s": None if changes is None or seconds <= 0 else changes / seconds,
    }


def _loop_ms(before: Load, after: Load) -> float | None:
    seconds = after["time"] - before.get("time", after["time"])
    spent_s = after["loop_s"] - before.get("loop_s", after["loop_s"])
    return None if seconds <= 0 or spent_s < 0 else 1e3 * spent_s / seconds


def _grown(before: Load, after: Load, key: str) -> int | None:
    old, new = before.get(key), after[key]
    return None if old is None or new is None or new < old else new - old


def lines(found: dict[str, Any], width: int = sys.maxsize, most: int | None = None) -> list[str]:
    """Return the tables as lines of ``width`` characters at most, and ``most`` of them: routers are cut, the busiest
    come first. Where there is no screen, names are whole.
    """
    planes = _table(_PLANES, 1, [_plane_cells(row) for row in found["planes"]], width)
    routers = _table(_ROUTERS, 2, [_router_cells(row) for row in found["routers"]], width)
    shown = [*planes, "", *routers]
    if used := [row for row in found["shares"] if row["core_ms_per_s"] or row["over_share"]]:
        shown += ["", *_table(_SHARES, 2, [_share_cells(row) for row in used], width)]
    if found["lost_punts"]:
        shown += ["", *_table(_LOST, 4, [_lost_cells(row) for row in found["lost_punts"]], width)]
    if found["lost_frames"]:
        shown += ["", *_table(_FRAMES, 4, [_frame_cells(row) for row in found["lost_frames"]], width)]
    mute = [row["plane"] for row in found["planes"] if not row["tells_lost_punts"]]
    shown += [f"plane {plane} does not tell what its policers drop"[:width] for plane in mute]
    if most is not None and len(shown) > most:
        shown = [*shown[: max(0, most - 1)], f"… {len(shown) - most + 1} more lines"[:width]]
    return shown


def _plane_cells(row: dict[str, Any]) -> list[str]:
    tables = [_fullness(row["tables"].get(name)) for name in ("ipv4_route", "ipv6_route")]
    return [
        row["plane"],
        _number(row["packets_per_s"]),
        _share(row["in_hardware"]),
        *tables,
        _number(row["changes_per_s"]),
    ]


def _router_cells(row: dict[str, Any]) -> list[str]:
    names = [row["router"], row["plane"]]
    share, changes = _share(row["in_hardware"]), _number(row["changes_per_s"])
    loop = "" if row["loop_ms_per_s"] is None else f"{row['loop_ms_per_s']:.1f}"
    return [*names, _number(row["packets_per_s"]), share, str(row["entries"]), changes, loop]


def _share_cells(row: dict[str, Any]) -> list[str]:
    core = "" if row["core_ms_per_s"] is None else f"{row['core_ms_per_s']:.1f}"
    over = [_number(row["over_core_per_s"]), _number(row["over_link_per_s"]), str(row["over_share"])]
    return [row["router"], row["plane"], core, *over]


def _lost_cells(row: dict[str, Any]) -> list[str]:
    names = [row["router"], row["interface"] or "?"]
    return [*names, row["punt_class"] or "?", row["place"], _number(row["packets_per_s"]), str(row["packets"])]


def _frame_cells(row: dict[str, Any]) -> list[str]:
    names = [row["plane"], row["port"], row["place"], row["loss"]]
    return [*names, _number(row["frames_per_s"]), str(row["frames"])]


def _number(rate: float | None) -> str:
    return "" if rate is None else str(round(rate))


def _share(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _fullness(table: dict[str, Any] | None) -> str:
    if table is None:
        return ""
    return str(table["used"]) if table["capacity"] is None else f"{table['used']}/{table['capacity']}"


def _table(columns: Sequence[str], names: int, rows: list[list[str]], width: int) -> list[str]:
    """Return a table whose first columns are names, which are cut where it would be too wide."""
    cells = [[title.replace(" PER S", "/S") for title in titles_of(columns)], *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    while sum(widths) + _GAP * (len(widths) - 1) > width and max(widths[:names]) > _LEAST_NAME:
        widths[widths.index(max(widths[:names]))] -= 1
    return [(" " * _GAP).join(_fitted(texts, widths, names)).rstrip()[:width] for texts in cells]


def _fitted(texts: list[str], widths: list[int], names: int) -> list[str]:
    fitted = []
    for position, (text, size) in enumerate(zip(texts, widths, strict=True)):
        if position >= names:
            fitted.append(text.rjust(size))
        else:
            fitted.append(text.ljust(size) if len(text) <= size else text[: size - 1] + "…")
    return fitted
