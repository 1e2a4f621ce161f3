"""Rules that keep more than one model."""
