"""Policies: which entries of the model stay at home, one file each."""
