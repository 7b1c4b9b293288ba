"""Commands that show the state: get, routes, fib, neighbors, counters, trace, verify."""

from enum import StrEnum
from itertools import chain, islice
from typing import Annotated, Any

import typer

from controller.vrctl import output
from controller.vrctl.client import Refused, path_of
from controller.vrctl.output import Format
from controller.vrctl.shell import FAILED, INTERRUPTED, Output, Router, app, client, complete_router, router_path

_MIB = 1 << 20


class Kind(StrEnum):
    """What `get` lists."""

    TENANTS = "tenants"
    SLICES = "slices"
    ROUTERS = "routers"
    PLANES = "planes"
    INTERFACES = "interfaces"
    CERTIFICATES = "certificates"


class Where(StrEnum):
    """Where a route is, on a plane with a fallback."""

    HARDWARE = "hardware"
    SOFTWARE = "software"


_COLUMNS = {
    Kind.ROUTERS: "router plane guest state ipv4_routes ipv6_routes neighbors nexthops groups pending refused reason",
    Kind.PLANES: "name kind reached_at connected routers ports routes entries capabilities reason",
    Kind.INTERFACES: "router name port vlan mac mtu addresses up port_up",
    Kind.TENANTS: "name slices routers",
    Kind.CERTIFICATES: "owner state valid_until names serial directory",
    Kind.SLICES: "slice ipv4_routes ipv6_routes neighbors nexthops groups sets members interfaces memory rule share",
}


def tenant_row(view: dict[str, Any]) -> dict[str, Any]:
    """Write each slice of a tenant as one item, with what it has in hardware where that has a bound."""
    slices = []
    for part in view["slices"]:
        items = [f"{port} {vlans}" for port, vlans in part["ports"].items()]
        for name in ("hardware_ipv4_routes", "hardware_ipv6_routes"):
            if part["quota"][name] is not None:
                items.append(f"{name} {part['used'].get(name, 0)}/{part['quota'][name]}")
        slices.append(f"{part['plane']}: " + "; ".join(items))
    return view | {"slices": slices}


def slice_row(view: dict[str, Any]) -> dict[str, Any]:
    """Write of each quota what is used of what is reserved, or of the limit where nothing is to be reserved from."""
    rule = "overcommit" if view["overcommit"] else "reserved"
    row = {"slice": view["slice"], "rule": rule, "share": _share_text(view["share"])}
    for name in ("ipv4_routes", "ipv6_routes", "neighbors", "nexthops", "groups", "sets", "members", "interfaces"):
        row[name] = f"{view['used'].get(name, 0)}/{view['reserved'].get(name, view['quota'][name])}"
    room = view["reserved"].get("memory")
    used = view["used"].get("memory", 0) / _MIB
    return row | {"memory": f"{used:.1f}" + ("" if room is None else f"/{room / _MIB:.1f}") + " MiB"}


def plane_row(view: dict[str, Any]) -> dict[str, Any]:
    """Count a plane's ports, and name those that are not up: a switch may have hundreds. Show how full its route
    tables are: those of the hardware where there is a fallback.
    """
    down = [port.removesuffix(" down") for port in view["ports"] if port.endswith(" down")]
    counts = [f"{len(view['ports']) - len(down)} up"] if view["ports"] else []
    tables = view["tables"]
    entries = {name: count for name, count in view["entries"].items() if name.removeprefix("hardware ") not in tables}
    return view | {
        "ports": counts + ([f"{len(down)} down: {' '.join(down)}"] if down else []),
        "entries": entries,
        "routes": {name.removesuffix("_route"): _fullness(one) for name, one in tables.items()},
    }


def _fullness(table: dict[str, Any]) -> str:
    if table["capacity"] is None:
        return str(table["used"])
    return f"{table['used']}/{table['capacity']} {table['source']}"


def router_row(view: dict[str, Any]) -> dict[str, Any]:
    """Show a move under way beside the placement that it leads to, and what no plane forwards where all is well."""
    move = view["move"]
    share = _share_text(view["share"]) if view["share"] else ""
    view = view | {"reason": view["reason"] or "; ".join(view["remarks"]), "share": share}
    return view if move is None else view | {"placement": f"→ {move['to']} {move['done']:,}/{move['total']:,}"}


def _share_text(view: dict[str, Any]) -> str:
    """Write a share as the document does: weight 2, ceiling 40 %."""
    parts = {name: view[f"{name}_percent"] for name in ("guarantee", "ceiling")}
    return ", ".join([f"weight {view['weight']}", *(f"{name} {part:g} %" for name, part in parts.items() if part)])


_ROWS = {Kind.TENANTS: tenant_row, Kind.SLICES: slice_row, Kind.PLANES: plane_row, Kind.ROUTERS: router_row}


@app.command()
def get(
    kind: Kind,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="go on with what changes; Ctrl-C ends it")] = False,
    form: Output = Format.TABLE,
) -> None:
    """List tenants, slices, routers, planes, interfaces, or certificates (but those of routers, which last 90 days).

    With --watch, a terminal shows the list as it is now; a pipe or a file gets a line for each row that changes.
    """

    def read() -> list[dict[str, Any]]:
        rows = client().get(kind.value)
        return [_ROWS[kind](row) for row in rows] if form is Format.TABLE and kind in _ROWS else rows

    rows = read()
    columns = _COLUMNS[kind].split()
    if any(row.get("placement") for row in rows):
        columns.insert(2, "placement")
    if kind is Kind.ROUTERS and any(row.get("share") for row in rows):
        columns.insert(3, "share")
    if not watch:
        output.write_rows(rows, columns, form, f"no {kind}")
        return
    from controller.vrctl.live import watching

    try:
        watching.watch(read, columns, form)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def routes(router: Router, form: Output = Format.TABLE) -> None:
    """Show the routes a router learned (its RIB)."""
    rows = client().lines("GET", path_of(*router_path(router), "routes"))
    output.write_rows(rows, ("prefix", "kind", "nexthops", "stale", "installed"), form, "no routes")


@app.command()
def fib(
    router: Router,
    where: Annotated[Where | None, typer.Option("--where", help="on a plane with a fallback: only these")] = None,
    form: Output = Format.TABLE,
) -> None:
    """Show what is installed on the plane for a router (its FIB)."""
    rows = iter(client().lines("GET", path_of(*router_path(router), "fib")))
    first = list(islice(rows, 1))
    chosen = (row for row in chain(first, rows) if where is None or row["where"] == where)
    columns = ["prefix", "action", "object_id", "nexthops"]
    if any(row["where"] for row in first):
        columns.append("where")
    nothing = "nothing is installed" if where is None else f"nothing is in {where}"
    output.write_rows(chosen, columns, form, nothing)


@app.command()
def neighbors(router: Router, form: Output = Format.TABLE) -> None:
    """Show the neighbors of a router."""
    rows = client().get(*router_path(router), "neighbors")
    output.write_rows(rows, ("interface", "address", "mac", "state"), form, "no neighbors")


@app.command()
def counters(
    router: Router,
    by_route: Annotated[bool, typer.Option("--routes", help="of its routes, where the plane counts them")] = False,
    form: Output = Format.TABLE,
) -> None:
    """Show packets and octets of a router's interfaces, and punts and drops by reason; or of its routes."""
    if by_route:
        routes = client().lines("GET", path_of(*router_path(router), "counters", "routes"))
        of_routes = ("prefix", "plane", "packets", "octets", "counted")
        output.write_rows(routes, of_routes, form, "no packet has met a route")
        return None
    view = client().get(*router_path(router), "counters")
    if form is not Format.TABLE:
        return output.write_value(view, form)
    columns = ("interface", "rx_packets", "rx_bytes", "tx_packets", "tx_bytes")
    rows = [{"interface": name, **counts} for name, counts in view["interfaces"].items()]
    output.write_rows(rows, columns, form, "no interfaces")
    for what in ("punts", "relayed", "drops"):
        found = [{what: reason, "packets": count} for reason, count in view[what].items()]
        if found:
            print()
            output.write_rows(found, (what, "packets"), form)
    return None


@app.command()
def trace(
    router: Router,
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="IPv4 or IPv6 address")],
    interface: Annotated[str | None, typer.Option("-i", "--interface", help="where the packet comes in")] = None,
    form: Output = Format.TABLE,
) -> None:
    """Show which table, entry and port a packet to a destination meets."""
    rows = client().get(*router_path(router), "trace", destination=destination, interface=interface)
    output.write_rows(rows, ("table", "key", "entry", "action"), form)


@app.command()
def verify(
    router: Annotated[str | None, typer.Argument(help="default: all routers", autocompletion=complete_router)] = None,
    repair: Annotated[bool, typer.Option("--repair", help="write what differs again")] = False,
    form: Output = Format.TABLE,
) -> None:
    """Compare what was learned, what is desired and what the plane holds.

    Exit status 1 where they differ, where a quota or the plane refused routes, or where a plane cannot be read.
    """
    names = (
        [view["router"] for view in client().get("routers") if view["state"] != "deleting"]
        if router is None
        else [router]
    )
    views = []
    for name in names:
        try:
            view = client().call("POST", path_of(*router_path(name), "verify", repair=repair), {})
        except Refused as problem:  # such as a plane that is away, which says nothing of the others
            if router is not None:
                raise
            output.complain(f"{name}: {problem}")
            continue
        views.append(view)
        if form is Format.TABLE:
            _show_verify(view)
    if form is not Format.TABLE:
        output.write_value(views, form)
    if len(views) < len(names) or not all(view["equal"] and not view["refused"] for view in views):
        raise typer.Exit(FAILED)


def _show_verify(view: dict[str, Any]) -> None:
    verdict = "equal" if view["equal"] else f"{view['total_differences']} ranges of addresses differ"
    extra = [f"{view[name]} {name}" for name in ("refused", "repaired", "foreign") if view[name]]
    print(", ".join([f"{view['router']}: {view['routes']} prefixes, {verdict}", *extra]))
    for entry in view["damaged"]:
        print(f"    damaged: {entry}")
    for one in view["differences"]:
        where = one["first"] if one["first"] == one["last"] else f"{one['first']} – {one['last']}"
        print(f"    {where}: learned {one['learned']}, desired {one['desired']}, installed {one['installed']}")
