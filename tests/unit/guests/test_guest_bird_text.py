"""BIRD's configuration text: what is added, what is refused, and how BIRD's objections are told."""

from contextlib import suppress

import pytest

from controller.errors import GuestError
from controller.guests.suites import bird
from controller.guests.suites.config_text import MAX_TEXT_BYTES
from controller.guests.suites.unforwarded import remark
from controller.model import Routing, Suite
from vrc.guest.suites.bird import objection
from vrc.guest.suites.bird_control import Answer

ID = "router id 192.0.2.1;\n"


def test_the_operators_text_keeps_its_line_numbers() -> None:
    text = ID + "protocol device {}"
    whole = bird.compose(text, hold_time_s=90)
    assert whole.splitlines() == [*text.splitlines(), "log stderr all;", "graceful restart wait 90;"]


def test_what_the_operator_says_of_log_and_restart_wins() -> None:
    text = "log stderr { error };\ngraceful restart  wait 7;\n"
    assert bird.compose(text, hold_time_s=90) == text
    assert bird.compose("# log stderr all;\n/* graceful restart wait 7; */", 90).count("\n") == 4


@pytest.mark.parametrize(
    ("text", "disabled"),
    [
        ("protocol kernel { disabled; ipv4 { export all; }; }", True),
        ("protocol kernel k4 from T { ipv4 { export all; };\n disabled yes; }", True),
        ("template kernel T { disabled; }\nprotocol kernel from T { ipv4; }", True),
        ("protocol kernel { ipv4; }\nprotocol kernel { disabled; ipv6; }", True),
        ("protocol kernel { ipv4; }\nprotocol bgp { disabled; }", False),
        ("protocol bgp { disabled; }\nprotocol kernel { ipv4; }", False),
        ("protocol kernel { disabled no; ipv4; }", False),
        ("protocol kernel { # disabled;\n ipv4; }", False),
        ('protocol kernel { description "disabled"; ipv4; }', False),
        ("protocol kernel { ipv4;", False),
    ],
)
def test_a_kernel_protocol_is_meant_to_be_down_only_where_its_own_text_says_so(text: str, disabled: bool) -> None:
    assert bird.disables_kernel(ID + text) is disabled


def test_the_protocols_that_write_to_the_kernel_are_counted() -> None:
    template = "template kernel T { ipv4; }\nprotocol kernel from T {}\n"
    assert bird.kernel_protocols(ID + template + "# protocol kernel {}\nprotocol kernel k6 { ipv6; }\n") == 2
    assert bird.kernel_protocols(ID + "protocol device {}") == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (ID + 'include "/etc/passwd";', "line 2: the text is the whole configuration"),
        (ID + '\t include\n"/etc/bird/*.conf";', "line 3: the text is the whole configuration"),
        (ID + '/* a\nb */ include "x";', "line 3: the text is the whole configuration"),
        (ID + 'define a = "#"; include "x";', "line 2: the text is the whole configuration"),
        (ID + 'log "/tmp/x" all;', "line 2: a guest's log is its supervisor's; write `log stderr all;`: log"),
        (ID + "log syslog all;", "line 2: a guest's log"),
        ("log name all;", "line 1: a guest's log"),
        (ID + 'protocol device {} mrtdump "/tmp/x";', "line 2: a guest has no place for dumps"),
        ('router id from "eth*";', "line 1: BIRD starts before its interfaces have addresses"),
        ("protocol device {}", "bird has no router id"),
        ('# router id 1.1.1.1;\nprotocol device { # "\n}', "bird has no router id"),
        (ID + "\x1b[31m", "line 2: control character"),
        ("#" * (MAX_TEXT_BYTES + 1), "bird is longer than 1 MiB"),
    ],
)
def test_what_splitplane_does_not_take_is_refused_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(GuestError) as refusal:
        bird.refuse_foreign("red/r1", text)
    assert problem in str(refusal.value)
    assert str(refusal.value).startswith("red/r1: bird ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        '# include "x";\n' + ID + 'define a = "include";\n/* log syslog all; */\nlog stderr all;\n',
        "protocol device {}\n" + ID + "filter include_all { accept; }\nmrtdump protocols all;\n",
    ],
)
def test_an_ordinary_text_is_not_refused(text: str) -> None:
    bird.refuse_foreign("red/r1", text)


@pytest.mark.parametrize(
    "repeated",
    [
        *("\n", "# a comment\n", "/* ", '"\n', "}\n", "mpls;\n", 'include "x";\n'),
        *("log\n", "}protocol kernel ", "protocol kernel { ", "protocol kernel { } "),
    ],
)
def test_the_longest_text_is_read_in_no_time(repeated: str) -> None:
    """A tenant's text holds up the event loop: for minutes and hours where a part of it is read again and again."""
    text = repeated * (MAX_TEXT_BYTES // len(repeated))
    with suppress(GuestError):
        bird.refuse_foreign("red/r1", text)
    assert bird.compose(text, 90).startswith(text.rstrip("\n"))
    assert bool(bird.kernel_protocols(text)) is repeated.startswith("protocol")
    assert not bird.disables_kernel(text)
    assert remark(Routing(Suite.BIRD, text)) or "protocol" in repeated


def test_a_missing_bird_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bird, "BINARY", "/nowhere/bird")
    assert not bird.can_check()
    with pytest.raises(GuestError, match=r"^BIRD is not installed: /nowhere/bird not found; apt-get install bird2$"):
        bird.require_programs("red/r1", "")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer(8002, "/etc/bird/bird.conf:2:1 syntax error"), "line 2: syntax error: nonsense"),
        (Answer(8002, "/etc/bird/bird.conf:9:0 no protocol"), "line 9: no protocol"),
        (Answer(8002, "/etc/bird/bird.conf: No such file"), "/etc/bird/bird.conf: No such file"),
        (Answer(6, "Reconfiguration ignored, shutting down"), "Reconfiguration ignored, shutting down"),
        (Answer(8002, ""), "no reason given"),
    ],
)
def test_an_objection_names_the_line_of_the_text(answer: Answer, told: str) -> None:
    assert objection(answer, ID + "  nonsense\n") == told
