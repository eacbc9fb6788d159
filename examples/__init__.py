"""What to try first."""
