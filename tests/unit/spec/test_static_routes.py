"""Lines of the `ip` suite: what they become, and what is refused with its line."""

import pytest

from controller.spec.static_routes import MAX_ROUTES, LineError, parse_routes


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("route add 10.0.0.0/8 via 192.0.2.1", "unicast 10.0.0.0/8 proto static via 192.0.2.1"),
        ("route replace 10.1.1.1 dev eth0 onlink", "unicast 10.1.1.1/32 proto static dev eth0 onlink"),
        ("-4 route add default via 192.0.2.1 # out", "unicast 0.0.0.0/0 proto static via 192.0.2.1"),
        ("route add default via 2001:db8::1", "unicast ::/0 proto static via 2001:db8::1"),
        ("-6 route add default dev eth0", "unicast ::/0 proto static dev eth0"),
        ("route add blackhole 2001:DB8::/32", "blackhole 2001:db8::/32 proto static"),
        ("route add unreachable default", "unreachable 0.0.0.0/0 proto static"),
        (
            "route add 10.0.0.0/8 via inet6 fe80::1 dev eth0 src 192.0.2.9 metric 5",
            "unicast 10.0.0.0/8 proto static metric 5 src 192.0.2.9 via inet6 fe80::1 dev eth0",
        ),
        ("route add 10.0.0.0/8 via 2001:db8::1", "unicast 10.0.0.0/8 proto static via inet6 2001:db8::1"),
        (
            "route add 10.0.0.0/8 metric 3 nexthop via 192.0.2.1 weight 2 nexthop dev eth1",
            "unicast 10.0.0.0/8 proto static metric 3 nexthop via 192.0.2.1 weight 2 nexthop dev eth1",
        ),
    ],
)
def test_a_route_is_written_as_the_kernel_takes_it(line: str, text: str) -> None:
    (route,) = parse_routes(f"\n# first\n  {line}\n")
    assert (route.line, route.text) == (3, text)


def test_a_comment_ends_with_its_line() -> None:
    (route,) = parse_routes("# a\u2028b\r\nroute add blackhole 10.0.0.0/8\r\n")
    assert route.line == 2


def test_metrics_tell_routes_of_one_prefix_apart() -> None:
    text = "route add 10.0.0.0/8 via 192.0.2.1\nroute add 10.0.0.0/8 metric 9 via 192.0.2.2\n"
    assert [route.key for route in parse_routes(text)] == ["10.0.0.0/8 metric 0", "10.0.0.0/8 metric 9"]


def test_the_interfaces_of_a_route_are_known() -> None:
    (route,) = parse_routes("route add 10.0.0.0/8 nexthop via 192.0.2.1 dev eth0 nexthop dev eth1")
    assert route.devices == ["eth0", "eth1"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("address add 10.0.0.1/24 dev eth0", "a line is `route add PREFIX"),
        ("ip route add 10.0.0.0/8 dev eth0", "a line is `route add PREFIX"),
        ("route del 10.0.0.0/8", "a line is `route add PREFIX"),
        ("route flush table main", "a line is `route add PREFIX"),
        ("-6", "a line is `route add PREFIX"),
        ("-8 route add ::/0 dev eth0", "a line is `route add PREFIX"),
        ("route add", "something is missing after 'route'"),
        ("route add 10.0.0.0/8 via", "something is missing after 'via'"),
        ("route add 10.0.0.0/8 via eth0", "'eth0' is no address"),
        ("route add 10.0.0.0/8 dev \x1b[31m", "'\\x1b[31m' is no name of an interface"),
        ("route add 10.0.0.1/8 dev eth0", "'10.0.0.1/8' is no prefix"),
        ("route add ten dev eth0", "'ten' is no prefix"),
        ("route add balckhole 10.0.0.0/8", "'balckhole' is no prefix"),
        ("-6 route add 10.0.0.0/8 dev eth0", "10.0.0.0/8 is no prefix of -6"),
        ("route add 10.0.0.0/8", "10.0.0.0/8 leads nowhere; give via, dev or nexthop, or write blackhole"),
        ("route add 10.0.0.0/8 nexthop weight 2", "nexthop leads nowhere"),
        ("route add blackhole 10.0.0.0/8 dev eth0", "blackhole goes nowhere; leave out what follows"),
        ("route add 10.0.0.0/8 via 192.0.2.1 table 9", "unknown word 'table'; known here: metric, src, via"),
        ("route add 10.0.0.0/8 via 192.0.2.1 weight 2", "unknown word 'weight'"),
        ("route add 10.0.0.0/8 nexthop via 192.0.2.1 metric 2", "unknown word 'metric'; known here: via, dev"),
        ("route add 10.0.0.0/8 dev eth0 nexthop via 192.0.2.1", "give via and dev, or nexthop, not both"),
        ("route add 10.0.0.0/8 metric -1 dev eth0", "metric '-1' is no number from 1 to 4294967295"),
        ("route add 10.0.0.0/8 metric ² dev eth0", "metric '²' is no number"),
        ("route add 10.0.0.0/8 nexthop via 192.0.2.1 weight 257", "weight '257' is no number from 1 to 256"),
        ("route add ::/0 via 192.0.2.1", "an IPv6 route cannot go via 192.0.2.1"),
        ("route add 10.0.0.0/8 via inet6 192.0.2.1", "192.0.2.1 is no address of inet6"),
        ("route add ::/0 via fe80::1", "fe80::1 is on every link; name one with dev"),
        ("route add 10.0.0.0/8 dev eth0 src 2001:db8::1", "src 2001:db8::1 is of another family"),
        ("route add 10.9.0.0/16 dev eth1", "10.9.0.0/16 is given twice with this metric, first on line 1"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(line: str, problem: str) -> None:
    with pytest.raises(LineError) as refusal:
        parse_routes(f"route add 10.9.0.0/16 dev eth0\n\n{line}\n")
    assert str(refusal.value).startswith(f"ip line 3: {problem}")


def test_routes_are_bounded() -> None:
    many = "".join(f"route add blackhole 10.{i >> 8}.{i & 255}.0/24\n" for i in range(MAX_ROUTES + 1))
    with pytest.raises(LineError, match=f"^ip line {MAX_ROUTES + 1}: more than {MAX_ROUTES} routes; use a routing"):
        parse_routes(many)
