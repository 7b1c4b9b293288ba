"""FRR's configuration text: the daemons it asks for, what is refused, and how FRR's objections are told."""

import pytest

from controller.errors import GuestError
from controller.guests import frr
from controller.guests.texts import MAX_TEXT_BYTES
from vrc.guest.frr import first_error


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
    ],
)
def test_a_line_asks_for_its_daemon(line: str, daemon: str) -> None:
    assert set(frr.daemons_for(f"hostname r\n{line}\n")) - {"zebra", "staticd"} == {daemon}


def test_bfd_of_another_protocol_asks_for_both() -> None:
    assert set(frr.daemons_for("interface eth0\n ip ospf bfd\n")) == {"zebra", "staticd", "ospfd", "bfdd"}


def test_zebra_and_staticd_always_run_and_zebra_comes_first() -> None:
    assert frr.daemons_for("! router bgp 1\n# router ospf\n description bfd\n") == ("zebra", "staticd")


def test_the_operators_text_keeps_its_line_numbers() -> None:
    text = "ip route 10.0.0.0/8 Null0\nrouter bgp 1"
    whole = frr.compose(text, "red-r1", fpm=True)
    assert whole.splitlines()[:2] == text.splitlines()
    assert whole.splitlines()[2:] == [
        "!",
        "hostname red-r1",
        "zebra nexthop-group keep 1",
        "fpm address 127.0.0.1",
        "!",
    ]


def test_groups_are_forgotten_soon_unless_the_operator_says_how_long() -> None:
    assert "\nzebra nexthop-group keep 1\n" in frr.compose("", "r1", True)
    assert frr.compose("zebra nexthop-group keep 30", "r1", True).count("nexthop-group keep") == 1


def test_a_hostname_of_the_operator_wins_and_netlink_needs_no_fpm() -> None:
    assert frr.compose("hostname core\n", "red-r1", fpm=False) == "hostname core\n!\nzebra nexthop-group keep 1\n!\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("!\nfpm address 10.0.0.1\n", "line 2: fpm is"),
        ("no  fpm address\n", "line 1: fpm is"),
        ("router bgp 1\n do  start-shell bash\n", "line 2: a configuration holds no commands"),
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


def test_an_ordinary_text_is_not_refused() -> None:
    frr.refuse_foreign("red/r1", "router bgp 1\n\tneighbor 10.0.0.2 remote-as 2\nrouter ospf\nrouter ospf6\n")


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
    assert first_error(said, text) == "line 4: Specify remote-as first: neighbor 10.0.0.9 timers 1 3"


def test_an_objection_to_grammar_names_the_line_of_the_text() -> None:
    assert (
        first_error(["line 9: % Unknown command[25]:  foo bar"], "!\n foo bar\n")
        == "line 2: Unknown command: foo bar"
    )


def test_a_failure_without_a_known_form_shows_its_first_words() -> None:
    assert first_error(["", "vtysh: cannot connect", "more"], "!\n") == "vtysh: cannot connect"
    assert first_error([], "!\n") == "no reason given"
