"""What the guest's daemons decided: sources of routes, the nexthops they share, and the table made of them."""
