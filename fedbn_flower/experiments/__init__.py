"""Experiments: several runs of one table, from the command line or a file, started again where they stopped."""
