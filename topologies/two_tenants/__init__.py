"""Two tenants with the same addresses on one switch."""
