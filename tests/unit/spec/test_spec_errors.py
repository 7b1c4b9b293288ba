"""A broken document is refused in one line that names file, line, thing and remedy."""

import time
from dataclasses import replace

import pytest

from controller.errors import SpecError
from controller.spec import addresses
from controller.spec.check import check
from controller.spec.lines import MAX_SIZE_BYTES, load
from controller.spec.merge import Where, merge
from controller.spec.parse import parse
from controller.spec.state import Ids, State

GOOD = """\
version: 1
planes:
  - {name: s1, datapath_id: "0x1"}
tenants:
  - name: red
    slices:
      - plane: s1
        ports: {p1: [untagged], p2: [100, 200-210]}
        quota: {ipv4_routes: 1000}
    routers:
      - name: r1
        plane: s1
        hold_time_s: 60
        interfaces:
          - {name: eth0, port: p1, addresses: [10.0.0.1/24]}
          - {name: eth1, port: p2, vlan: 100, addresses: [10.0.1.1/24]}
      - name: r2
        plane: s1
        interfaces:
          - {name: eth0, port: p2, vlan: 200, mac: "02:00:00:00:00:01"}
"""


def lay_over_nothing(text: str) -> State:
    state, where = merge(parse(text, "net.yaml"), State(), Ids(), {})
    check(state, where)
    return state


def refusal(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        lay_over_nothing(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_document_that_the_table_breaks_is_good() -> None:
    assert sorted(lay_over_nothing(GOOD).routers) == ["red/r1", "red/r2"]


def test_what_is_empty_where_a_list_belongs_is_not_to_be_put_into_one() -> None:
    with pytest.raises(SpecError) as raised:
        parse("version: 1\ntenants:\n", "t.yaml")
    assert str(raised.value) == "t.yaml:2: tenants: null should be a list"


def test_an_anchor_may_be_given_anew() -> None:
    text = GOOD.replace("10.0.0.1/24", "&a 10.0.0.1/24").replace("10.0.1.1/24", "&a 10.0.1.1/24")
    assert lay_over_nothing(text) == lay_over_nothing(GOOD)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("version: 1", "version: 2", 1, "version: 2 should be 1"),
        ("version: 1", f"version: {16**4000:#x}", 1, f"version: 0x1{'0' * 54}… should be a smaller number"),
        ('"0x1"', f"{16**4000:#x}", 3, f"datapath_id: 0x1{'0' * 54}… should be "),
        ('"0x1"', f"{2**64:#x}", 3, f"datapath_id: {2**64} should be less than or equal to {2**64 - 1}"),
        ("version: 1", f"version: {10**30}", 1, f"version: {10**30} should be "),
        ("version: 1", f"version: {'9' * 5000}", 1, f"'{'9' * 56}… cannot be read: "),
        ('"0x1"', "x" * 5000, 3, f"datapath_id: '{'x' * 56}… is no datapath id; write an integer"),
        ("hold_time_s", "x" * 500, 13, f"unknown key '{'x' * 56}…; known here: name"),
        ("version: 1\n", "", 1, "'version' is missing"),
        ("version: 1", "verison: 1", 1, "unknown key 'verison'; known here: version, planes, tenants"),
        ("name: red", "name: 12", 5, "name: 12 should be a string; quote it"),
        ("name: red", "name: 1e3", 5, "name: 1000.0 should be lower-case letters, digits"),
        ("name: red", "name: true", 5, "name: true should be a string; quote it"),
        ("name: red", f"name: {16**4000:#x}", 5, f"name: 0x1{'0' * 54}… should be lower-case letters, digits"),
        ("[untagged], p2", "[0], p2", 8, "p1: 0 should be greater than or equal to 1 or a VLAN id, a range such as"),
        ("[untagged], p2", "[1.5], p2", 8, "p1: 1.5 should be a valid integer or a VLAN id, a range such as"),
        ("mac:", "virtual_macs: [17], mac:", 20, "virtual_macs: 17 should be a MAC address such as"),
        ("[10.0.0.1/24]", "[17]", 15, "addresses: 17 should be a string; quote it"),
        ("name: red", "name: 2026-01-31", 5, "name: 2026-01-31 should be a string; quote it"),
        (
            "quota: {ipv4_routes: 1000}",
            "share: {guarantee: 10}",
            9,
            "guarantee: 10 should be a part of the whole such",
        ),
        ("hold_time_s: 60", "hold_tme_s: 60", 13, "unknown key 'hold_tme_s'; known here: name, plane, hold_time_s"),
        ("ipv4_routes", "ipv4_rutes", 9, "unknown key 'ipv4_rutes'"),
        ("hold_time_s: 60", "hold_time_s: soon", 13, "'soon' should be a valid integer"),
        ("hold_time_s: 60", "hold_time_s: true", 13, "true should be a valid integer"),
        ("hold_time_s: 60", "source: 2026-01-31", 13, "source: 2026-01-31 should be 'fpm' or 'netlink'"),
        ("hold_time_s: 60", "hold_time_s: !!binary aGk=", 13, "hold_time_s: binary data should be a valid integer"),
        ("hold_time_s: 60", "guest:", 13, "guest: null should be a mapping"),
        ("hold_time_s: 60", "command: {daemons: []}", 13, "daemons: a list should be at least 1 long"),
        ("hold_time_s: 60", f"command: {{daemons: {[{}] * 9}}}", 13, "daemons: a list should be at most 8 long"),
        ("hold_time_s: 60", "command: {daemons: [{argv: [/b]}], files: []}", 13, "files: a list should be a mapping"),
        ("hold_time_s: 60", "hold_time_s: [", 15, "not YAML"),
        ("hold_time_s: 60", "hold_time_s: '60", 21, "found unexpected end of stream (it begins on line 13)"),
        ("        hold_time_s", "\thold_time_s", 13, "found character '\\t' that cannot start any token; use spaces"),
        (
            "name: r1\n",
            "name:r1\n",
            12,
            "mapping values are not allowed here; look there and above for a ':' without",
        ),
        (
            "    routers:",
            "   routers:",
            10,
            "'<block mapping start>' (it begins on line 5); indent it as those beside it",
        ),
        ("{name: eth0, port: p1", "{<<: {port: p1}, name: eth0", 15, "merge keys (<<) are not supported; write out"),
        ("[10.0.0.1/24]", "10.0.0.1/24", 15, "addresses: '10.0.0.1/24' should be a list; put it into [ ]"),
        ("[untagged], p2", "untagged, p2", 8, "p1: 'untagged' should be a list; put it into [ ]"),
        (
            "  - name: red",
            "    name: red",
            4,
            "tenants: a mapping should be a list; begin each of its entries with '- '",
        ),
        ("hold_time_s: 60", "hold_time_s: !!bool maybe", 13, "'maybe' cannot be read"),
        ("hold_time_s: 60", 'hold_time_s: !!int ""', 13, "'' cannot be read"),
        ("hold_time_s: 60", 'hold_time_s: !!float ""', 13, "'' cannot be read"),
        ("p1: [untagged]", '"p\\n1": [untagged]', 8, "p?1: 'p\\n1' should be a port name"),
        ("10.0.0.1/24]", '"10.0.0.1\\n"]', 15, "10.0.0.1? has no prefix length"),
        ("hold_time_s: 60", "plane: s1", 13, "'plane' appears twice"),
        ("name: red", "name: Red_", 5, "'Red_' should be lower-case letters"),
        ('name: s1, datapath_id: "0x1"', 'name: s1, datapath_id: "x1"', 3, "no datapath id"),
        ('name: s1, datapath_id: "0x1"', "name: s1", 3, "needs a datapath_id"),
        ("hold_time_s: 60", "command: babeld", 13, "command: 'babeld' should be a mapping"),
        ("hold_time_s: 60", "command: {daemons: []}", 13, "daemons: a list should"),
        ("hold_time_s: 60", "command: {daemons: [{argv: [babeld]}]}", 13, "'babeld' is no command; begin with"),
        ("hold_time_s: 60", 'command: {daemons: [{argv: ["/b\\n"]}]}', 13, "'/b\\n' is no command; begin with"),
        ("hold_time_s: 60", "command: {daemons: [{argv: [/b], reload: KILL}]}", 13, "reload: 'KILL' should be"),
        ("hold_time_s: 60", "command: {daemons: [{argv: [/b]}, {argv: [/b]}]}", 13, "'b' is taken; give its daemon"),
        ("hold_time_s: 60", "command: {daemons: [{argv: [/limits]}]}", 13, "'limits' is taken; give its daemon"),
        ("hold_time_s: 60", "command: {daemons: [{argv: [/guest]}]}", 13, "'guest' is taken; give its daemon"),
        ("hold_time_s: 60", "command: {daemons: [{argv: [/b]}], user: root}", 13, "user: root is refused"),
        (
            "hold_time_s: 60",
            "command: {daemons: [{argv: [/b]}], files: {../a: b}}",
            13,
            "should be the name of a file",
        ),
        ("hold_time_s: 60", "guest: {kind: vmware}", 13, "kind: 'vmware' should be 'netns' or 'kvm'"),
        ("hold_time_s: 60", "guest: {vcpus: 2}", 13, "r1: vcpus belongs to a guest of kind kvm; leave it out"),
        ("hold_time_s: 60", "guest:\n          kind: netns\n          image: /srv/i", 15, "image belongs to a guest"),
        ("hold_time_s: 60", "guest: {kind: kvm, memory: 64M}", 13, "64M is no size for a guest; memory goes from"),
        ("hold_time_s: 60", "guest: {kind: kvm, memory: 65G}", 13, "65G is no size for a guest"),
        ("hold_time_s: 60", "guest: {kind: kvm, memory: 256}", 13, "memory: 256 should be a size such as 256M or 2G"),
        ("hold_time_s: 60", "guest: {kind: kvm, memory: 256MB}", 13, "'256MB' should be a size such as 256M or 2G"),
        ("hold_time_s: 60", "guest:\n          kind: kvm\n          vcpus: 65", 15, "less than or equal to 64"),
        ("hold_time_s: 60", "guest: {kind: kvm, vcpus: 0}", 13, "greater than or equal to 1"),
        ("hold_time_s: 60", "guest: {kind: kvm, image: here}", 13, "the absolute path of an image's directory"),
        ("[untagged]", "[untaged]", 8, "'untaged' should be a valid integer or a VLAN id, a range"),
        ("200-210", "210-200", 8, "no VLAN range"),
        ("[100,", "[5000,", 8, "less than or equal to 4094"),
        ("name: eth0, port: p1", "name: sixteen-letters-, port: p1", 15, "at most 15 characters"),
        ("name: eth0, port: p1", "name: lo, port: p1", 15, "taken by the kernel"),
        ("10.0.0.1/24]", "10.0.0.1]", 15, "no prefix length"),
        (
            "10.0.0.1/24]",
            f"{'x' * 5000}]",
            15,
            f"addresses: {'x' * 57}… has no prefix length; write {'x' * 57}…/24 or",
        ),
        ("10.0.0.1/24]", f"fe80::1%{'x' * 5000}/64]", 15, f"fe80::1%{'x' * 49}… cannot be an interface's address"),
        ("ports: {p1", f"ports: {{{'x' * 500}: 1, p1", 8, f" {'x' * 57}…: '{'x' * 56}… should be a port name"),
        ("10.0.0.1/24]", "10.0.0.255/24]", 15, "network or broadcast"),
        (
            "10.0.0.1/24]",
            "10.0.0.300/24]",
            15,
            "'10.0.0.300/24' is no address with a prefix length such as 192.0.2.1",
        ),
        ("10.0.0.1/24]", "224.0.0.1/24]", 15, "cannot be an interface's address"),
        ("10.0.0.1/24]", "fe80::1%eth0/64]", 15, "fe80::1%eth0/64 cannot be an interface's address"),
        ("10.0.0.1/24]", "10.0.1.9/16]", 16, "overlaps"),
        ("10.0.1.1/24]", "10.0.0.1/24]", 16, "declared twice on router red/r1"),
        ("02:00:00:00:00:01", "01:00:00:00:00:01", 20, "not a unicast MAC"),
        ("02:00:00:00:00:01", "02:00", 20, "should be a MAC address"),
        ('mac: "02', 'mtu: 67, mac: "02', 20, "greater than or equal to 68"),
        ("vlan: 200", "vlan: 100", 20, "used by interface eth1 of red/r1 and by interface eth0 of red/r2"),
        ("vlan: 200", "vlan: 199", 20, "port p2 VLAN 199 of plane s1 is not in the slice of tenant red; add it"),
        ("port: p2, vlan: 200", "vlan: 200", 20, "has no port; give it one, or name it in a link"),
        ("name: r2\n        plane: s1", "name: r2\n        plane: s9", 17, "plane s9 is not declared (known: s1)"),
        ("- plane: s1\n        ports", "- plane: s9\n        ports", 7, "plane s9 is not declared"),
        ("name: r2", "name: r1", 17, "router red/r1 is declared twice, first on line 11"),
        ("name: eth1", "name: eth0", 16, "interface eth0 of red/r1 is declared twice, first on line 15"),
        ("hold_time_s: 60", "frr_file: a.conf", 13, "was not sent along"),
        ("hold_time_s: 60", "frr_file: a.conf\n        frr: x", 13, "not both"),
        ("hold_time_s: 60", "bird: x\n        frr: x", 13, "router red/r1: give frr or bird, not both"),
        ("hold_time_s: 60", "bird: x\n        ip_file: x", 14, "router red/r1: give bird or ip_file, not both"),
        ("hold_time_s: 60", "bird_file: a.conf", 13, "bird_file a.conf was not sent along"),
        ("hold_time_s: 60", "bird: x\n        source: fpm", 14, "fpm is FRR's; leave source out, bird has netlink"),
        ("hold_time_s: 60", "ip: ''\n        source: fpm", 14, "fpm is FRR's; leave source out, ip has netlink"),
        ("hold_time_s: 60", "ip: |\n          #\n          link show", 11, "red/r1: ip line 2: a line is `route add"),
        ("hold_time_s: 60", "ip: route add ::/0 dev eth7", 11, "has no interface eth7 (known: eth0, eth1)"),
        ("hold_time_s: 60", "guest: {kind: vm}", 13, "'vm' should be 'netns'"),
        ("  - name: red", "  - {name: blue, slices: [{plane: s1, ports: {p2: [205]}}]}\n  - name: red", 8, "tenants"),
        ("tenants:", "tenants: &a\n  - *a\nx:", 5, "nested"),
        ("version: 1", "- version: 1", 1, ""),
    ],
)
def test_what_is_wrong_is_named_with_its_line(old: str, new: str, line: int, words: str) -> None:
    assert old in GOOD
    text = refusal(GOOD.replace(old, new, 1))
    assert words in text
    assert text.startswith(f"net.yaml:{line}: ") or (words in ("nested", "") and text.startswith("net.yaml:"))


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n---\n"])
def test_an_empty_file_says_what_to_write(text: str) -> None:
    assert "the file is empty; a document starts with 'version: 1'" in refusal(text)


def test_documents_of_one_file_add_up_and_keep_their_lines() -> None:
    more = "---\nversion: 1\ntenants:\n  - {name: blue, routers: [{name: r1, plane: s1}]}\n"
    assert "net.yaml:24: tenant blue has no slice of plane s1" in refusal(GOOD + more)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x" * (MAX_SIZE_BYTES + 1), "larger than 1 MiB"),
        ("- " * 5000, "nested"),
        (
            "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + "".join(f"{b}: &{b} [{','.join(['*' + a] * 10)}]\n" for a, b in zip("abcde", "bcdef", strict=True)),
            "more than 200000 values",
        ),
        ("a: \x00", "not allowed"),
        ('a: "\\ud800"', r"x:1: character U\+D800 is not allowed"),
        ('"\\udfff": a', r"x:1: character U\+DFFF is not allowed"),
        ("a: *b", "undefined alias"),
        ("a: !!python/object:os.system x", "cannot be read"),
        ("? [a]\n: b", "a key must be a plain word"),
        ("a: !!int zz", "cannot be read"),
    ],
)
def test_hostile_text_is_refused(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        load(text, "x")


@pytest.mark.parametrize(
    ("port", "words"),
    [
        ("{number: 1, devic: a}", "net.yaml:8: unknown key 'devic'; known here: number, device"),
        ("{device: a}", "net.yaml:7: key 'number' is missing"),
        ("{number: x}", "net.yaml:8: number: 'x' should be a valid integer"),
        ("{number: [1]}", "net.yaml:8: number: a list should be a valid integer"),
        ("x", "net.yaml:7: p1: 'x' should be a valid integer or a mapping"),
    ],
)
def test_what_is_wrong_in_a_port_that_may_be_a_number_as_well_is_named(port: str, words: str) -> None:
    line = "\n          " if "{" in port else ""
    text = "version: 1\nplanes:\n  - name: s1\n    kind: p4runtime\n    address: a:1\n    ports:\n      p1: "
    assert refusal(f"{text}{line}{port}\n") == words


@pytest.mark.parametrize(
    ("virtual", "words"),
    [
        (["02:00:00:00:00:01"], "names its own MAC as a virtual one"),
        (["00:00:5e:00:01:01", "00:00:5e:00:02:01", "00:00:5E:00:01:01"], "names a virtual MAC twice; keep one"),
    ],
)
def test_the_macs_of_an_interface_differ(virtual: list[str], words: str) -> None:
    """A plane has one entry for each: it would differ from what is declared at every audit."""
    text = GOOD.replace('"02:00:00:00:00:01"', f'"02:00:00:00:00:01", virtual_macs: {virtual}')
    assert refusal(text) == f"net.yaml:20: interface eth0 of red/r2 {words}"


def test_a_macvlan_is_named_as_the_guest_has_it() -> None:
    """By the first letters of its interface, and by the next number where they are another one's as well."""
    long = '{name: wan-upstream-%s, port: p1, vlan: %d, virtual_macs: ["00:00:5e:00:01:0%d"]}'
    text = GOOD.replace("[untagged]", "[untagged, 7, 8]")
    text = text.replace(
        "          - {name: eth1,",
        f"          - {long % ('a', 7, 1)}\n          - {long % ('b', 8, 2)}\n          - {{name: eth1,",
    )
    for device in ("wan-upstream-a", "wan-upstrea-v1", "wan-upstrea-v2"):
        lay_over_nothing(text.replace("hold_time_s: 60", f"ip: route add ::/0 dev {device}"))
    for device in ("wan-upstream-a-v1", "wan-upstrea-v3"):
        with pytest.raises(SpecError, match=rf"no interface {device} \(known: eth0, wan-upstream-a, "):
            lay_over_nothing(text.replace("hold_time_s: 60", f"ip: route add ::/0 dev {device}"))


def test_a_router_of_thousands_of_interfaces_has_macvlans_of_two_digits() -> None:
    state = lay_over_nothing(GOOD.replace("hold_time_s: 60", "ip: route add ::/0 dev eth0"))
    router = state.routers["red/r1"]
    like = replace(router.interfaces[1], addresses=())
    interfaces = tuple(
        replace(like, id=number, name=f"customer-gw{number}", vlan=number, virtual_macs=(number.to_bytes(6, "big"),))
        for number in range(1, 4000)
    )
    part = replace(state.tenants["red"].slices[0], ports=(("p2", frozenset(range(1, 4000))),))
    wide = replace(router, interfaces=interfaces)

    def check_device(name: str) -> None:
        routed = replace(wide, routing=replace(router.routing, text=f"route add ::/0 dev {name}"))
        tenants = {"red": replace(state.tenants["red"], slices=(part,))}
        check(replace(state, tenants=tenants, routers={"red/r1": routed}), Where("net.yaml"))

    check_device("customer-gw-v99")
    with pytest.raises(SpecError, match="it has no interface customer-gw-v100 "):
        check_device("customer-gw-v100")


def test_thousands_of_addresses_are_checked_at_once() -> None:
    state = lay_over_nothing(GOOD)
    router = state.routers["red/r1"]
    first, _ = router.interfaces
    interfaces = tuple(
        replace(first, id=n, name=f"eth{n}", addresses=(f"10.{n >> 8}.{n & 255}.1/24", "fe80::1/64"))
        for n in range(4000)
    )
    last = replace(first, id=4000, name="last", addresses=("10.15.159.2/32",))
    begun_s = time.process_time()
    found = addresses.problems(replace(state, routers={"r": replace(router, interfaces=(*interfaces, last))}))
    assert [problem for _, problem in found] == [
        "router red/r1: 10.15.159.2/32 of last overlaps with 10.15.159.1/24 of eth3999"
    ]
    assert time.process_time() - begun_s < 5.0  # of comparing each with each it is a minute
