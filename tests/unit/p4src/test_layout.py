"""The forwarder's sizes and codes (forwarder/pipeline/layout.h) are those of p4src/common/ids.p4."""

import re
from pathlib import Path

from controller.planes.base import PuntClass
from controller.planes.p4runtime.lost_punts import PLACES

ROOT = Path(__file__).parents[3]
P4 = (ROOT / "p4src/common/ids.p4").read_text()
LAYOUT = (ROOT / "forwarder/pipeline/layout.h").read_text()
DAEMON = (ROOT / "forwarder/daemon/counters.cc").read_text()

IDS = {name: int(value, 0) for name, value in re.findall(r"^#define (\w+) (\w+)$", P4, re.MULTILINE)}
DEFINED = {
    name: int(value, 0) for name, value in re.findall(r"^#define SP_(\w+) (\d\w*?)u?(?: .*)?$", LAYOUT, re.MULTILINE)
}
LISTED = {name: int(value, 0) for name, value in re.findall(r"\bSP_(\w+) = (\w+)", LAYOUT)}

SIZES = {
    "VRFS": "ROUTERS",
    "INTERFACES": "ROUTER_INTERFACES",
    "NEXTHOPS": "NEXTHOPS",
    "GROUPS": "NEXTHOP_GROUPS",
    "GROUP_WEIGHT": "GROUP_WEIGHT",
    "GROUP_MEMBERS": "GROUP_MEMBERS",
    "PUNT_CLASSES": "PUNT_CLASSES",
}


def test_sizes() -> None:
    assert {name: DEFINED[name] for name in SIZES} == {name: IDS[theirs] for name, theirs in SIZES.items()}
    assert DEFINED["INTERFACE_MACS"] == 1 + IDS["VIRTUAL_MACS"]
    assert DEFINED["REASONS"] == 1 + IDS["REASONS"]


def test_reasons_and_classes() -> None:
    theirs = {name: value for name, value in IDS.items() if name.startswith(("PUNT_", "DROP_", "CLASS_"))}
    del theirs["PUNT_CLASSES"]
    del theirs["PUNT_TABLE"]
    del theirs["PUNT_CLASS_TABLE"]
    theirs = {name: value for name, value in theirs.items() if not name.endswith("_ACTION")}
    ours = {name: value for name, value in LISTED.items() if name.startswith(("PUNT_", "DROP_", "CLASS_"))}
    assert ours == theirs
    assert LISTED["FIRST_DROP"] == IDS["FIRST_DROP"]
    assert len(ours) == IDS["REASONS"] + IDS["PUNT_CLASSES"]


def test_the_daemon_calls_reasons_by_these_names() -> None:
    reasons = sorted(
        (value, name.split("_", 1)[1].lower())
        for name, value in LISTED.items()
        if name.startswith(("PUNT_", "DROP_"))
    )
    text = DAEMON.split("kReasonNames{", 1)[1].split("};")[0]
    assert re.findall(r'"(\w*)"', text) == ["", *(name for _, name in reasons)]


def test_the_daemon_calls_classes_and_places_as_the_controller_does() -> None:
    def names(of: str) -> list[str]:
        return re.findall(r'"(\w+)"', DAEMON.split(f"{of}{{", 1)[1].split("};")[0])

    assert names("kPuntClassNames") == [one.name.lower() for one in PuntClass]
    assert names("kPuntPlaceNames") == list(PLACES)
    places = sorted((value, name) for name, value in LISTED.items() if name.startswith("PLACE_"))
    assert [name.removeprefix("PLACE_").lower() for _, name in places] == list(PLACES)
    assert LISTED["PLACES"] == len(places)
