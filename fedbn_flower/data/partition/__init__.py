"""Partition the rows of a dataset among clients."""
