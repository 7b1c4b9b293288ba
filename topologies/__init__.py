"""Networks to try Splitplane in: Mininet hosts with FRR as neighbors of virtual routers, on any kind of plane."""
