"""Two spines and two leaves as virtual routers on four switches."""
