"""The kinds of planes that a network may have: Open vSwitch, BMv2, vr-forwarder."""
