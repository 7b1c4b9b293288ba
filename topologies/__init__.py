"""Networks to try Splitplane in: Mininet hosts with FRR as the neighbors of virtual routers on Open vSwitch."""
