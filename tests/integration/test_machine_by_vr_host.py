"""A machine made by vr-host, with no more of root than its unit leaves it, for a user who could not."""

import signal

import pytest
from guest_net import alive
from machines import needs_image, remember_accelerator
from vr_hosts import vr_host

from controller.guests import pidfile

pytestmark = pytest.mark.root


def test_a_machine_outlives_vr_host_and_is_found_again() -> None:
    needs_image()
    with vr_host("kvm") as host:
        remember_accelerator(host.base / "state")
        started = host.asked("start")
        pid = pidfile.find(host.base / "state/guests/1")
        assert started["pid"] == pid != 0
        assert started["daemons"]["machine"] == "booting"
        host.end(signal.SIGKILL)
        assert alive(pid)
        host.start()
        assert host.asked("look_after")["pid"] == pid
        assert not host.asked("stop")["running"]
        assert not alive(pid)
