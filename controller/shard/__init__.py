"""One plane with its fallback and the routers on it."""
