"""What operators are told, bounded in rate and free of control characters."""
