"""What an operator changes, and how the running state follows."""
