"""Readers of Datasets, and of what functions return."""
