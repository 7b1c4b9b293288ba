"""Which routes of a router are in hardware, and in which order they move."""
