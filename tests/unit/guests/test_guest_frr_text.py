"""FRR's configuration text: the daemons it asks for, what is refused, and how FRR's objections are told."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from controller.errors import GuestError
from controller.guests.suites import frr
from controller.guests.suites.config_text import MAX_TEXT_BYTES
from controller.guests.suites.unforwarded import remark
from controller.model import Routing, Suite
from vrc.guest.suites.frr_objections import first_error, refusals


@pytest.mark.parametrize(
    ("line", "daemon"),
    [
        ("router bgp 65001", "bgpd"),
        ("router ospf", "ospfd"),
        (" ip ospf area 0", "ospfd"),
        ("router ospf6", "ospf6d"),
        (" ipv6 ospf6 area 0", "ospf6d"),
        ("router isis core", "isisd"),
        ("router rip", "ripd"),
        ("router ripng", "ripngd"),
        ("bfd", "bfdd"),
        (" neighbor 10.0.0.2 bfd", "bfdd"),
        (" vrrp 5 version 3", "vrrpd"),
        ("ip   pim", "pimd"),
        ("router pim", "pimd"),
        ("interface eth0\n ipv6 mld", "pim6d"),
        ("router pim6", "pim6d"),
    ],
)
def test_a_line_asks_for_its_daemon(line: str, daemon: str) -> None:
    assert set(frr.daemons_for(f"hostname r\n{line}\n")) - {"zebra", "staticd"} == {daemon}


def test_bfd_of_another_protocol_asks_for_both() -> None:
    assert set(frr.daemons_for("interface eth0\n ip ospf bfd\n")) == {"zebra", "staticd", "ospfd", "bfdd"}


def test_zebra_and_staticd_always_run_and_zebra_comes_first() -> None:
    assert frr.daemons_for("! router bgp 1\n# router ospf\n description bfd\n") == ("zebra", "staticd")


def test_what_splitplane_adds_comes_first_and_is_not_counted() -> None:
    text = "ip route 10.0.0.0/8 Null0\nrouter bgp 1\nexit\nexit\n"
    whole = frr.compose(text, "red-r1", fpm=True)
    ours = ["hostname red-r1", "zebra nexthop-group keep 1", "fpm address 127.0.0.1", "!"]
    assert whole.text.splitlines() == [*ours, *text.splitlines()]
    assert whole.before == len(ours)
    assert first_error(["line 6: % Unknown command[2]: router bgp 1"], whole.text, whole.before).startswith(
        "line 2: "
    )


@pytest.mark.parametrize("repeated", ["\n", " \n", "log\n", "router bgp 1\n"])
def test_a_long_text_is_read_in_no_time(repeated: str) -> None:
    """A tenant's text holds up the event loop: for minutes and hours where a part of it is read again and again."""
    text = repeated * (MAX_TEXT_BYTES // 4 // len(repeated)) + "!\n"
    frr.refuse_foreign("red/r1", text)
    assert frr.compose(text, "r1", True).text.endswith(text)
    assert set(frr.daemons_for(text)) - {"zebra", "staticd"} == ({"bgpd"} if "bgp" in repeated else set())
    assert remark(Routing(Suite.FRR, text)) == ""


def test_groups_are_forgotten_soon_unless_the_operator_says_how_long() -> None:
    assert "\nzebra nexthop-group keep 1\n" in frr.compose("", "r1", True).text
    assert frr.compose("zebra nexthop-group keep 30", "r1", True).text.count("nexthop-group keep") == 1


def test_a_hostname_of_the_operator_wins_and_netlink_needs_no_fpm() -> None:
    whole = frr.compose("hostname core\n", "red-r1", fpm=False)
    assert whole.text == "zebra nexthop-group keep 1\n!\nhostname core\n"
    assert frr.hostname("hostname a\n hostname core\n! hostname x\n") == "core"
    assert frr.hostname("no hostname core\nhostname\n") == ""


@pytest.mark.parametrize(
    ("line", "placed"),
    [
        ("log file frr.log", "log file /var/log/frr/frr.log"),
        ("log  file b.log informational", "log  file /var/log/frr/b.log informational"),
        ("log file a/b.log", "log file /var/log/frr/b.log"),
        (" log file ../a/b.log debugging", " log file /var/log/frr/b.log debugging"),
        ("log filtered-file a/b.log", "log filtered-file /var/log/frr/b.log"),
        ("log file a/", "log file a/"),
        ("log file /tmp/frr.log", "log file /tmp/frr.log"),
        ("! log file frr.log", "! log file frr.log"),
        ("log syslog", "log syslog"),
    ],
)
def test_a_relative_log_file_lies_where_the_daemons_may_write(line: str, placed: str) -> None:
    assert f"\n{placed}\n" in frr.compose(line, "r1", True).text


@pytest.mark.parametrize(
    ("line", "placed"),
    [
        ("no ip forwarding", "!no ip forwarding"),
        ("no  ipv6\tforwarding \r", "!no  ipv6\tforwarding \r"),
        (" no ip forwarding", "! no ip forwarding"),
        ("ip forwarding", "ip forwarding"),
        ("no ip forwarding-thing", "no ip forwarding-thing"),
        ("no zebra nexthop  kernel enable", "!no zebra nexthop  kernel enable"),
        ("zebra nexthop proto only", "!zebra nexthop proto only"),
        ("zebra nexthop kernel enable", "zebra nexthop kernel enable"),
    ],
)
def test_no_line_takes_forwarding_from_the_guests_kernel_or_nexthops_from_fpm(line: str, placed: str) -> None:
    assert f"\n!\n{placed}\nrouter ospf\n" in frr.compose(f"{line}\nrouter ospf", "r1", True).text
    if "nexthop" in line:
        assert f"\n!\n{line}\n" in frr.compose(line, "r1", False).text


@pytest.mark.parametrize(
    ("line", "placed"),
    [
        ("banner motd file /etc/frr/motd", "!banner motd file /etc/frr/motd"),
        (" banner  motd file motd\t", "! banner  motd file motd\t"),
        ("banner motd line file", "banner motd line file"),
    ],
)
@pytest.mark.parametrize("fpm", [True, False])
def test_a_greeting_in_a_file_that_no_guest_has_is_left_out(line: str, placed: str, fpm: bool) -> None:
    assert f"\n!\n{placed}\nrouter ospf\n" in frr.compose(f"{line}\nrouter ospf", "r1", fpm).text


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("router bgp 1 neighbor x", "; if these are several lines, write `frr: |` before them"),
        ("router bgp 1\n neighbor x\n", ""),
    ],
)
async def test_an_objection_to_lines_that_yaml_has_joined_says_how_to_keep_them(
    monkeypatch: pytest.MonkeyPatch, text: str, hint: str
) -> None:
    first = text.split("\n")[0]

    async def object_to_it(_: Sequence[str], given: str) -> tuple[int, str]:
        return 2, f"line {given.split(chr(10)).index(first) + 1}: % Unknown command[4]: {first}"

    monkeypatch.setattr(frr, "dry_run", object_to_it)
    monkeypatch.setattr(frr, "require_installed", lambda _: None)
    with pytest.raises(GuestError) as refused:
        await frr.check("red/r1", text)
    assert str(refused.value) == f"red/r1: frr line 1: unknown command: {first}{hint}"


def test_a_daemon_that_is_not_installed_is_named_with_the_line_that_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("zebra", "staticd", "frr-reload.py"):
        (tmp_path / name).touch()
    monkeypatch.setattr(frr, "BINARIES", tmp_path)
    monkeypatch.setattr(frr, "VTYSH", str(tmp_path / "zebra"))
    frr.require_programs("red/r1", "ip route 10.0.0.0/8 Null0\n")
    with pytest.raises(GuestError) as refused:
        frr.require_programs("red/r1", "!\ninterface eth0\n ip  router eigrp\nrouter eigrp 1\n")
    missing = f"eigrpd is not installed ({tmp_path}/eigrpd; apt-get install frr)"
    assert str(refused.value) == f"red/r1: frr line 4: {missing}: router eigrp 1"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("!\nfpm address 10.0.0.1\n", "line 2: fpm is"),
        ("no  fpm address\n", "line 1: fpm is"),
        ("router bgp 1\n do  start-shell bash\n", "line 2: a configuration holds no commands"),
        ("find .\n", "line 1: a configuration holds no commands"),
        ("!\noutput file /tmp/x\n", "line 2: what vtysh says goes to no file"),
        ("interface eth0\n o  fi /tmp/x\n", "line 2: what vtysh says goes to no file"),
        ("router ospf 2\n", "line 1: several OSPF instances"),
        ("ip route \x1b[31m\n", "line 1: control character"),
        ("description \ud800\n", "line 1: control character"),
        ("!\r\ndescription \x0bfpm\n", "line 2: control character"),
        ("!" * (MAX_TEXT_BYTES + 1), "longer than 1 MiB"),
    ],
)
def test_what_splitplane_does_not_take_is_refused_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(GuestError, match=f"^red/r1: .*{problem}"):
        frr.refuse_foreign("red/r1", text)


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\u2029"])
def test_lines_end_where_frr_ends_them(character: str) -> None:
    text = f"interface eth0\n description a{character}fpm b{character}ip pim\n!\nip nonsense\n"
    frr.refuse_foreign("red/r1", text)
    assert frr.daemons_for(text) == ("zebra", "staticd")
    assert remark(Routing(Suite.FRR, text)) == ""
    assert first_error(["line 4: % Unknown command[4]: ip nonsense"], text).startswith("line 4: ")


def test_an_ordinary_text_is_not_refused() -> None:
    frr.refuse_foreign("red/r1", "router bgp 1\n\tneighbor 10.0.0.2 remote-as 2\nrouter ospf\nrouter ospf6\n")
    frr.refuse_foreign("red/r1", "interface out\n description out file\n")


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(frr, "BINARIES", tmp_path)
    assert not frr.can_check()
    with pytest.raises(GuestError, match=r"/bgpd not found; apt-get install frr$"):
        frr.require_installed(("bgpd",))


def test_an_objection_of_a_daemon_names_the_line_of_the_text() -> None:
    said = [
        "vtysh_pam: Failed in account validation: Authentication failure(7)% Specify remote-as first",
        "line 3: Failure to communicate[13] to bgpd, line:  neighbor 10.0.0.9 timers 1 3",
    ]
    text = "!\nrouter bgp 1\n neighbor 10.0.0.2 remote-as 2\n neighbor 10.0.0.9 timers 1 3\n"
    assert first_error(said, text) == "line 4: Specify remote-as first (bgpd): neighbor 10.0.0.9 timers 1 3"


def test_an_objection_to_grammar_names_the_line_of_the_text() -> None:
    assert (
        first_error(["line 9: % Unknown command[25]:  foo bar"], "!\n foo bar\n")
        == "line 2: Unknown command: foo bar"
    )


def test_what_one_daemon_refused_is_not_forgotten_when_another_starts_again() -> None:
    whole = {"": "line 2: Specify remote-as (bgpd): neighbor x"}
    assert refusals(whole, "ospfd", "") == whole
    assert refusals(whole, "ospfd", "line 9: no") == {**whole, "ospfd": "line 9: no"}
    assert refusals({**whole, "ospfd": "line 9: no"}, "ospfd", "") == whole
    assert refusals(whole, "bgpd", "") == refusals(whole, "", "") == {}
    assert refusals(whole, "bgpd", whole[""]) == {"bgpd": whole[""]}


def test_a_failure_without_a_known_form_shows_its_first_words() -> None:
    assert first_error(["", "vtysh: cannot connect", "more"], "!\n") == "vtysh: cannot connect"
    assert first_error([], "!\n") == "no reason given"


@pytest.mark.parametrize("version", ["8.4", "8.4.4", "10.3", "10.3.1"])
def test_a_version_that_was_tried_needs_no_word(version: str) -> None:
    assert frr.remarks_on(version) == []


@pytest.mark.parametrize("version", ["8.3.2", "8.5", "9.1", "10.2.1", "10.4", "11.0.1"])
def test_a_version_that_was_never_tried_is_named(version: str) -> None:
    assert frr.remarks_on(version) == [f"FRR {version} was never tried, only 8.4 and 10.3"]


def test_what_frr_10_says_is_understood_in_any_order() -> None:
    text = "ip route 10.0.0.0/8 Null0\nrouter bgp 1\n neighbor 10.0.0.9 timers 1 3\nnonsense\n"
    line = " neighbor 10.0.0.9 timers 1 3"
    refused = ["% Specify remote-as first", f"line 3: Failure to communicate[13] to bgpd, line: {line}"]
    unknown = ["line 4: % Unknown command[28]:  nonsense", "[64|zebra] Configuration file processing failure: 2"]
    wanted = "line 3: Specify remote-as first (bgpd): neighbor 10.0.0.9 timers 1 3"
    assert first_error([*refused, *unknown], text) == wanted
    assert first_error([*unknown, *refused], text) == wanted
    reloading = ["ERROR: vtysh failed to process new configuration", r"b'line 4: % Unknown command: nonsense\n\n'"]
    assert first_error(reloading, text) == "line 4: Unknown command: nonsense"
