"""A switch with room for a few routes, and vr-forwarder behind it, which holds them all."""
