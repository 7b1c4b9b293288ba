"""The words of a text that FRR takes though they are cut short, by what vtysh lists of its commands."""

import pytest

from controller.guests.suites import frr_commands

LISTED = """\
% Can't open configuration file /nonexistent/vtysh.conf due to 'No such file or directory'.
  (view)  show version
  (config)  list [permutations]
  (config)  router bgp [(1-4294967295) [<view|vrf> VIEWVRFNAME]]
  (config)  route-map RMAP_NAME <deny|permit> (1-65535)
  (config)  [no] ip forwarding
  (config)  [no] evpn mh startup-delay(0-3600)
  (config)  debug eigrp packets <hello|all> [send|receive]
  (config)  [no] ip route <A.B.C.D/M|A.B.C.D A.B.C.D> <A.B.C.D|INTERFACE> [{tag (1-4294967295)|(1-255)}]
  (interface)  <ip|ipv6>nhrp authentication PASSWORD
  (interface)  [no] ip address A.B.C.D/M
  (interface)  ip ospf [(1-65535)] area <A.B.C.D|(0-4294967295)>
  (interface)  description LINE...
  (interface)  [no] detect-multiplier ![(1-255)]
  (bgp)  [no] neighbor <A.B.C.D|WORD> advertisement-interval (0-600)
  (bgp)  neighbor <A.B.C.D|WORD> bfd
  (bgp ipv4)  network A.B.C.D/M
  (bgp ipv4)  maximum-paths (1-256)
line 2: % Unknown command[4]: rubbish
"""


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("ro bgp 1", "ro"),
        ("route bgp 1", "route"),
        ("\tip  ro 10.0.0.0/8 10.1.0.2", "ro"),
        ("no ip forw", "forw"),
        ("evpn mh startup 5", "startup"),
        ("debug eigrp pack hello", "pack"),
        ("ip ospf ar 0", "ar"),
        ("ip ospf 1 ar 0", "ar"),
        ("ipv6 nh authentication x", "nh"),
        ("no detect 3", "detect"),
        ("nei 10.1.0.2 bfd", "nei"),
        ("no neighbor PEERS adv 3", "adv"),
        ("route-map ip per 10", "per"),
    ],
)
def test_a_word_that_is_cut_short_is_found(line: str, word: str) -> None:
    assert _found(f"!\n{line}\n{line}\n") == [(2, word, " ".join(line.split())), (3, word, " ".join(line.split()))]


@pytest.mark.parametrize(
    "line",
    [
        "router bgp 1 vr default",  # deep inside of what is not looked into
        "route-map ip permit 10",
        "ip route 10.0.0.0/8 10.1.0.2 ta 5",
        "no ip forwarding",
        "no evpn mh startup-delay 12",
        "debug eigrp packet hello",  # as FRR writes it
        "ip ospf 1 area 0",
        "description ro bgp 1",
        "detect-multiplier 3",
        "neighbor adv bfd",
        "neighbor b advertisement-interval 3",
        "maximum-paths 8",
        "max-paths 8",  # no beginning of anything: a command that is not listed
        "show",
        "! ro bgp 1",
        " # ro bgp 1",
        "",
    ],
)
def test_whole_words_values_and_what_is_unknown_are_left_alone(line: str) -> None:
    assert _found(line) == []


def test_what_vtysh_says_besides_its_commands_is_kept_apart() -> None:
    commands, said = frr_commands.split(LISTED)
    assert "show version" not in commands
    assert said.splitlines() == [LISTED.splitlines()[0], LISTED.splitlines()[-1]]


def _found(text: str) -> list[tuple[int, str, str]]:
    return list(frr_commands.parse(frr_commands.split(LISTED)[0]).find_cut_short(text))
