"""Guests in a process of their own, vr-host: drivers behind a Unix socket, for a controller without privileges."""
