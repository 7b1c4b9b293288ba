"""The OpenFlow 1.3 plane."""

from controller.planes.openflow.plane import OpenFlowPlane
from controller.planes.openflow.server import OpenFlowListener

__all__ = ["OpenFlowListener", "OpenFlowPlane"]
