"""Flower's own examples and baselines on both engines."""
