"""One controller on fakes, for the tests of the operator's side."""

from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from operator_fakes import FakeCore, FakeGuests, FakeSessions
from stores import store_in

from controller.audit.log import AuditLog
from controller.diagnostics.operator_views import OperatorViews
from controller.errors import GuestError
from controller.events.log import EventLog
from controller.guests.fleet import GuestFleet
from controller.model import GuestKind, RouterConfig
from controller.operations.certificates import Certificates
from controller.operations.convergence import Convergence
from controller.operations.operations import Operations, Outcome
from controller.pki.authority import PKI, system_clock
from controller.pki.planes import PlaneCertificates
from controller.planes.fake import FakePlane


class Controller:
    """Everything but the API, on fakes."""

    def __init__(self, state: Path) -> None:
        self.core, self.guests, self.events = FakeCore(), FakeGuests(), EventLog()
        self.sessions = FakeSessions(state / "sessions")
        self.store = store_in(state)
        self.refused: dict[str, str] = {}
        self.remarks: list[str] = []
        self.restarts = 0
        self.drivers = {GuestKind.NETNS: self.guests}
        self.pki = pki = PKI(state, self.store)
        fleet = GuestFleet(state, self.drivers, {GuestKind.NETNS: self.check}, pki, self.sessions, self.events)
        self.convergence = Convergence(self.store, self.core, lambda c, _: FakePlane(c.name), fleet, self.events)
        self.views = OperatorViews(self.convergence, self.core, fleet)
        self.planes = PlaneCertificates(pki, self.store, system_clock)
        self.certificates = Certificates(pki, self.planes, self.convergence, fleet, self.events)
        self.audit = AuditLog(state / "audit", self.events)
        self.operations = Operations(
            *(state, self.store, self.certificates, self.convergence, self.views, fleet, self.events, self.audit),
            self.restart,
        )

    async def check(self, router: RouterConfig) -> list[str]:
        if router.full_name in self.refused:
            raise GuestError(self.refused[router.full_name])
        return self.remarks

    def restart(self) -> None:
        self.restarts += 1

    async def apply(self, text: str, files: Mapping[str, str] | None = None) -> Outcome:
        return await self.operations.apply(text, "t.yaml", files or {}, lambda _: None, lambda: None)

    def serial(self, vrf_id: int) -> str:
        """The serial that a router's certificate names."""
        pem = (self.pki.identity(vrf_id) / "cert.pem").read_bytes()
        names = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName)
        (uri,) = names.value.get_values_for_type(x509.UniformResourceIdentifier)
        return uri.rpartition(":")[2]

    def attached(self) -> dict[str, list[tuple[str, int]]]:
        return {r.full_name: [(i.port, i.vlan) for i in r.interfaces] for r in self.core.routers.values()}
