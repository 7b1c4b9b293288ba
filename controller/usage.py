"""What a slice has in use, against what its quota allows."""

from dataclasses import dataclass

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
