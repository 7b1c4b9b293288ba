"""The controller's certificate authority."""
