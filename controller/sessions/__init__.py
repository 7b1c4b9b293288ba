"""The VRCs: their connections, and what they say of their routers."""
