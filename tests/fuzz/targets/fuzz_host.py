"""What vr-host is asked: a line of JSON of whoever has taken over the controller, and what is derived from it."""

import asyncio
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from controller.errors import GuestError
from controller.guests.host.messages import Request, Start
from controller.guests.host.server import HostServer
from controller.model import GuestKind

INSTRUMENTED = ("controller.guests.host",)
_STATE, _RUN = Path("/var/lib/splitplane"), Path("/run/splitplane")


class _Guests:
    """Takes any guest, and sees that its places are below vr-host's own directories."""

    async def start(self, spec):
        assert spec.directory.parent == _STATE / "guests"
        assert spec.session.parent == _RUN / "sessions"
        assert spec.directory.name == spec.session.name == str(spec.vrf_id)
        assert not spec.guest.image or not Path(spec.guest.image).is_relative_to(_STATE)
        assert all("/" not in one.name for one in spec.interfaces)


_server = HostServer(Path("/tmp/host.sock"), dict.fromkeys(GuestKind, _Guests()), {}, _STATE, _RUN, set())
_loop = asyncio.new_event_loop()


def try_one(octets: bytes) -> None:
    """Read a request; what starts a guest is started."""
    with suppress(ValidationError, GuestError):
        request = Request.model_validate_json(octets)
        if isinstance(request.ask, Start):
            _loop.run_until_complete(_server._done(request))


def seeds() -> list[bytes]:
    """Requests of each kind."""
    guest = b'"vrf_id":7,"router":"red/r1","suite":"frr","kind":"kvm","memory_mib":256'
    declared = guest + b',"text":"!","vcpus":1,"image":"/srv/image"'
    interface = b'{"name":"left","mac":"02000000ff01","mtu":1500,"addresses":["192.0.2.1/24"],"admin_up":true}'
    identity = b'"identity":{"cert":"c","key":"k","ca":"a"}'
    wanted = declared + b',"source":"fpm","hold_time_s":30,"interfaces":[' + interface + b"]," + identity
    asks = [b'"start","guest":{' + wanted, b'"check","guest":{' + declared, b'"stop","guest":{' + guest]
    return [b'{"id":1,"ask":{"op":' + ask + b"}}}" for ask in asks]
