"""Policies: which entries of the model stay at home, by family."""
