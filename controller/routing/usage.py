"""What a slice has in use, against what its quota allows."""

from dataclasses import dataclass, fields

from controller.model import Quota


@dataclass(slots=True)
class SliceUsage:
    """What a tenant's routers on one plane use together, against its quota."""

    quota: Quota
    ipv4_routes: int = 0
    ipv6_routes: int = 0
    neighbors: int = 0
    nexthops: int = 0
    groups: int = 0

    def counts(self) -> dict[str, int]:
        """Return what is in use, by the keys of the quota."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "quota"}
