"""Secure aggregation: the server learns a sum, and nothing else."""
