"""vr-controller and vrctl: tenants, slices, RIB to FIB, planes, punt relay, guests and the operator API."""
