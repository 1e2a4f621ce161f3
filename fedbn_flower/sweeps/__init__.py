"""Experiments: several runs of one table, from flags or a file, started again where they stopped."""
