import json

import pytest

from lab.readings import Stream, answered, forwarded_datagrams, hops, neighbors, waiting


def replies(*rows: tuple[float, int]) -> str:
    head = "PING 10.2.0.10 (10.2.0.10) 56(84) bytes of data.\n"
    return head + "".join(f"[{at:.6f}] 64 bytes from 10.2.0.10: icmp_seq={n} ttl=60 time=0.5 ms\n" for at, n in rows)


def test_a_stream_without_a_loss():
    stream = Stream.read(replies((10.00, 1), (10.02, 2), (10.04, 3)), 0.02)
    assert (stream.sent, stream.lost) == (3, 0)
    assert stream.outage_ms == 0
    assert stream.lasted_s == pytest.approx(0.04)


def test_a_stream_counts_what_is_missing_before_its_last_reply_and_the_gap():
    stream = Stream.read(replies((10.00, 1), (10.10, 6), (10.12, 7)), 0.02)
    assert (stream.sent, stream.lost) == (7, 4)
    assert stream.outage_ms == pytest.approx(80)


def test_a_pause_in_which_nothing_was_lost_is_no_outage():
    assert Stream.read(replies((10.00, 1), (10.50, 2), (10.52, 3)), 0.02).outage_ms == 0


def test_a_duplicate_hides_no_loss():
    text = replies((10.00, 1), (10.01, 1), (10.04, 3))
    assert Stream.read(text, 0.02).lost == 1
    assert answered(text) == 2


def test_an_error_is_no_reply():
    text = "[10.0] From 10.0.1.1 icmp_seq=1 Destination Net Unreachable\n"
    assert answered(text) == 0
    assert Stream.read(text, 0.02) == Stream(0, 0, 0.0, 0.0)


def test_hops_of_both_families():
    text = (
        "traceroute to 10.2.0.10 (10.2.0.10), 30 hops max, 60 byte packets\n"
        " 1  10.1.0.1  0.048 ms  0.006 ms  0.004 ms\n"
        " 2  * * *\n"
        " 3  10.0.22.2  0.899 ms 10.0.21.2  1.034 ms 10.0.22.2  0.879 ms !N\n"
        " 4  2001:db8:2::10  1.016 ms  1.007 ms  0.999 ms\n"
    )
    assert hops(text) == ["10.1.0.1", "*", "10.0.21.2|10.0.22.2", "2001:db8:2::10"]


@pytest.mark.parametrize(
    ("protocol", "shown", "expected"),
    [
        ("OSPFv2", {"neighbors": {"10.255.0.1": [{"nbrState": "Full/-"}, {"nbrState": "ExStart/-"}]}}, 1),
        ("OSPFv2", {}, 0),
        ("OSPFv3", {"neighbors": [{"state": "Full"}, {"state": "Init"}]}, 1),
        (
            "BGP",
            {
                "ipv4Unicast": {"peers": {"10.0.1.1": {"state": "Established"}, "10.0.2.1": {"state": "Active"}}},
                "ipv6Unicast": {"peers": {"2001:db8::1": {"state": "Established"}}},
                "l2VpnEvpn": {"peers": {"10.0.1.1": {"state": "Established"}}},
            },
            2,
        ),
    ],
)
def test_neighbors_that_are_up(protocol, shown, expected):
    assert neighbors([protocol], json.dumps(shown)) == {protocol: expected}


def test_a_daemon_that_does_not_run_has_no_neighbors_and_vtysh_asks_nobody_after_it():
    full = '{"neighbors": [{"state": "Full"}]}\n\n'
    assert neighbors(("OSPFv3", "OSPFv2", "BGP"), full) == {"OSPFv3": 1, "OSPFv2": 0}
    shown = f"% not found\n{full}{{\n}}\n"
    assert neighbors(("OSPFv2", "OSPFv3", "BGP"), shown) == {"OSPFv2": 0, "OSPFv3": 1, "BGP": 0}


def test_neighbors_that_wait_say_why():
    shown = {
        "spine1": {"bgpState": "Established"},
        "spine2": {"bgpState": "Idle", "lastResetDueTo": "Waiting for NHT"},
        "spine3": {"bgpState": "Active"},
    }
    assert waiting(json.dumps(shown)) == ["spine2 Idle (Waiting for NHT)", "spine3 Active (never up)"]
    assert waiting("bgpd is not running\n") == []


def test_forwarded_datagrams_of_both_families():
    text = "Ip: Forwarding ForwDatagrams InDelivers\nIp: 1 17 4\nIcmp: InMsgs\nIcmp: 3\nIp6OutForwDatagrams   \t5\n"
    assert forwarded_datagrams(text) == 22
