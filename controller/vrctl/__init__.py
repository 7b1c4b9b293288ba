"""vrctl, the operator's command."""
