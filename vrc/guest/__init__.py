"""The parts of the guest's supervisor; the VRC itself needs none of them."""
