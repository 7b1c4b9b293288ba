"""The text of the `ip` suite: lines of `ip -batch` that add routes, and nothing else that `ip` can do.

    [-4|-6] route add|replace [TYPE] PREFIX [metric N] [src ADDRESS] [via [inet6] ADDRESS] [dev NAME] [onlink]
                                            [nexthop via ADDRESS dev NAME weight N onlink]…

`add` and `replace` mean the same: the route is kept as the line says. TYPE is unicast, blackhole, unreachable or
prohibit. Words are written out. "#" begins a comment.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

MAX_ROUTES = 10_000

_HEADS = {("route", "add"), ("route", "replace")}
_TYPES = ("unicast", "blackhole", "unreachable", "prohibit")
_FAMILIES = {"-4": 4, "-6": 6}
_INET = {"inet": 4, "inet6": 6}
_EVERYTHING = {4: "0.0.0.0/0", 6: "::/0"}
_IPV6_METRIC = 1024  # what the kernel makes of none
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_MAX_METRIC = (1 << 32) - 1
_MAX_WEIGHT = 256
_SHAPE = "a line is `route add PREFIX via ADDRESS` or the like, for IPv6 also `-6 route add …`"
_KNOWN = "metric, src, via, dev, onlink, nexthop"


class LineError(Exception):
    """A line that is not taken."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"ip line {line}: {problem}")


@dataclass(slots=True)
class _Nexthop:
    """What leads to one neighbor."""

    via: str = ""
    via_family: int = 0
    device: str = ""
    weight: int = 0
    onlink: bool = False

    def words(self, family: int) -> str:
        """Return it as `ip` takes it."""
        name = "inet6 " if self.via_family > family else ""
        found = [f"via {name}{self.via}"] if self.via else []
        found += [f"dev {self.device}"] if self.device else []
        found += [f"weight {self.weight}"] if self.weight else []
        return " ".join([*found, *(["onlink"] if self.onlink else [])])


@dataclass(slots=True)
class StaticRoute:
    """One line: a route for the kernel's main table."""

    line: int
    type: str
    prefix: IPv4Network | IPv6Network
    metric: int = 0
    source: str = ""
    nexthops: list[_Nexthop] = field(default_factory=list)  # the first is the route's own, outside of `nexthop`

    @property
    def key(self) -> str:
        """What the kernel tells routes apart by."""
        return f"{self.prefix} metric {self.metric or (_IPV6_METRIC if self.prefix.version == 6 else 0)}"

    @property
    def devices(self) -> list[str]:
        """The interfaces it names."""
        return [nexthop.device for nexthop in self.nexthops if nexthop.device]

    @property
    def text(self) -> str:
        """The route as it follows `ip route replace`."""
        own, *others = (nexthop.words(self.prefix.version) for nexthop in self.nexthops)
        words = [self.type, str(self.prefix), "proto static"]
        words += [f"metric {self.metric}"] if self.metric else []
        words += [f"src {self.source}"] if self.source else []
        return " ".join(filter(None, [*words, own, *(f"nexthop {other}" for other in others)]))


def parse_routes(text: str) -> list[StaticRoute]:
    """Return the routes of a text in order; LineError for the first line that is not taken."""
    routes: dict[str, StaticRoute] = {}
    for number, line in enumerate(text.split("\n"), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            route = _Line(number, words).route()
        except ValueError as problem:
            raise LineError(number, str(problem)) from None
        first = routes.setdefault(route.key, route)
        if first is not route:
            raise LineError(number, f"{route.prefix} is given twice with this metric, first on line {first.line}")
        if len(routes) > MAX_ROUTES:
            raise LineError(number, f"more than {MAX_ROUTES} routes; use a routing daemon")
    return list(routes.values())


class _Line:
    """The words of one line, taken one after the other."""

    def __init__(self, number: int, words: list[str]) -> None:
        self._number, self._words = number, iter(words)
        self._last = ""  # keyword

    def route(self) -> StaticRoute:
        """Take them all; ValueError says what is wrong."""
        family, kind, destination = self._head()
        if destination != "default":
            _network(destination)  # before what follows: this may be a type of routes, misspelt
        metric, source, nexthops = 0, "", [_Nexthop()]
        for word in self._words:
            self._last = word
            inside = len(nexthops) > 1
            if word == "nexthop":
                nexthops.append(_Nexthop())
            elif word == "metric" and not inside:
                metric = self._number_to(_MAX_METRIC)
            elif word == "src" and not inside:
                source = str(_address(self._next()))
            else:
                self._take(nexthops[-1], word, inside)
        prefix = _prefix(destination, family, nexthops)
        route = StaticRoute(self._number, kind, prefix, metric, source, nexthops)
        _check(route)
        return route

    def _head(self) -> tuple[int, str, str]:
        word = next(self._words)
        family = _FAMILIES.get(word, 0)
        word = self._next() if family else word
        if (word, next(self._words, "")) not in _HEADS:
            raise ValueError(_SHAPE)
        self._last = "route"
        word = self._next()
        return (family, word, self._next()) if word in _TYPES else (family, "unicast", word)

    def _next(self) -> str:
        word = next(self._words, "")
        if not word:
            raise ValueError(f"something is missing after {self._last!r}" if self._last else _SHAPE)
        return word

    def _number_to(self, most: int) -> int:
        word = self._next()
        if not (word.isascii() and word.isdigit() and 1 <= int(word) <= most):
            raise ValueError(f"{self._last} {word!r} is no number from 1 to {most}")
        return int(word)

    def _take(self, nexthop: _Nexthop, word: str, inside: bool) -> None:
        match word:
            case "via":
                value = self._next()
                declared = _INET.get(value, 0)
                address = _address(self._next() if declared else value)
                if declared not in (0, address.version):
                    raise ValueError(f"{address} is no address of {value}")
                nexthop.via, nexthop.via_family = str(address), address.version
            case "dev":
                nexthop.device = _device(self._next())
            case "weight" if inside:
                nexthop.weight = self._number_to(_MAX_WEIGHT)
            case "onlink":
                nexthop.onlink = True
            case _:
                known = "via, dev, weight, onlink" if inside else _KNOWN
                raise ValueError(f"unknown word {word!r}; known here: {known}")


def _address(word: str) -> IPv4Address | IPv6Address:
    try:
        return ip_address(word)
    except ValueError:
        raise ValueError(f"{word!r} is no address") from None


def _device(word: str) -> str:
    if not _DEVICE.fullmatch(word):
        raise ValueError(f"{word!r} is no name of an interface")
    return word


def _network(word: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(word)
    except ValueError:
        raise ValueError(f"{word!r} is no prefix; write 192.0.2.0/24, 2001:db8::/32 or default") from None


def _prefix(word: str, family: int, nexthops: list[_Nexthop]) -> IPv4Network | IPv6Network:
    if word == "default":
        gateways: Iterator[int] = (nexthop.via_family for nexthop in nexthops if nexthop.via_family)
        word = _EVERYTHING[family or next(gateways, 4)]
    prefix = _network(word)
    if family not in (0, prefix.version):
        raise ValueError(f"{prefix} is no prefix of -{family}")
    return prefix


def _check(route: StaticRoute) -> None:
    """ValueError for what `ip` or the kernel would never take."""
    own, *others = route.nexthops
    if route.type != "unicast":
        if others or own != _Nexthop():
            raise ValueError(f"{route.type} goes nowhere; leave out what follows the prefix")
        return
    if not others and not (own.via or own.device):
        raise ValueError(f"{route.prefix} leads nowhere; give via, dev or nexthop, or write blackhole {route.prefix}")
    if others and own != _Nexthop():
        raise ValueError("give via and dev, or nexthop, not both")
    for nexthop in others or [own]:
        if not (nexthop.via or nexthop.device):
            raise ValueError("nexthop leads nowhere; give via or dev")
        if nexthop.via and route.prefix.version == 6 and nexthop.via_family == 4:
            raise ValueError(f"an IPv6 route cannot go via {nexthop.via}")
        if nexthop.via and not nexthop.device and ip_address(nexthop.via).is_link_local:
            raise ValueError(f"{nexthop.via} is on every link; name one with dev")
    if route.source and ip_address(route.source).version != route.prefix.version:
        raise ValueError(f"src {route.source} is of another family than {route.prefix}")
