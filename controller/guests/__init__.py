"""Guests: where a tenant's routing daemons run."""
