"""Readers of files and of hub data sets."""
