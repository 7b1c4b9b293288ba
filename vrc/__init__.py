"""The virtual router controller: the agent beside a tenant's routing daemons."""
