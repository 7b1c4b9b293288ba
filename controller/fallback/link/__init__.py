"""The link between the two planes of a pair: its ports and VLANs, and whether it carries what it has to."""
