"""A plane and the fallback behind it, used as one plane."""
