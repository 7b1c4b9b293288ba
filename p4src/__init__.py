"""The pipeline in P4-16 and, in golden/, what p4c made of it."""
