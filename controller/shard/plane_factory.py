"""The one place that knows which back end drives which kind of plane."""

from collections.abc import Callable

from controller.errors import Conflict
from controller.fallback.hardware_routes import HardwareRoutes
from controller.fallback.link.ports import LinkPorts
from controller.fallback.link.probe import LinkProbe
from controller.fallback.plane import FallbackPair
from controller.model import PlaneConfig, PlaneKind
from controller.planes.base import Plane, PuntClass
from controller.planes.fake import FakePlane
from controller.planes.openflow.plane import OpenFlowPlane
from controller.planes.openflow.server import OpenFlowListener
from controller.planes.p4runtime.channel import TlsFiles
from controller.planes.p4runtime.plane import P4RuntimePlane

TlsOf = Callable[[str], TlsFiles]


class PlaneFactory:
    """Makes planes. OpenFlow ones share a listener; with ``named`` a switch has to show a certificate of its plane's
    name, because the authority that signed it also signs the routers' certificates. P4Runtime devices are spoken to
    over TLS where ``p4runtime_tls`` gives the files for it, by plane."""

    def __init__(
        self, listener: OpenFlowListener | None, *, named: bool = False, p4runtime_tls: TlsOf | None = None
    ) -> None:
        self._listener, self._named, self._p4runtime_tls = listener, named, p4runtime_tls

    def __call__(self, config: PlaneConfig, fallback: PlaneConfig | None = None) -> Plane:
        """Return a plane that is ready to start; Conflict where this controller listens for none of its kind."""
        hardware = self._single(config)
        if config.fallback is None or fallback is None:
            return hardware
        link = LinkPorts(config.fallback.port, config.fallback.peer_port)
        room = {4: config.capacity.ipv4_route, 6: config.capacity.ipv6_route}
        software = self._single(fallback)
        return FallbackPair(hardware, software, link, HardwareRoutes(room), probe=LinkProbe(hardware, software, link))

    def _single(self, config: PlaneConfig) -> Plane:
        if config.kind is PlaneKind.FAKE:
            return FakePlane(config.name)
        if config.kind is PlaneKind.P4RUNTIME:
            return P4RuntimePlane(config, None if self._p4runtime_tls is None else self._p4runtime_tls(config.name))
        if self._listener is None:
            raise Conflict(f"plane {config.name}: this controller listens for no switches; start it with --openflow")
        return OpenFlowPlane(
            config.name,
            config.datapath_id,
            self._listener,
            certificate_name=config.name if self._named else None,
            shared_meters=tuple(
                frozenset(PuntClass[name.upper()] for name in classes) for classes in config.shared_meters
            ),
        )
