"""Errors, files, logs and names that every other package uses; nothing here depends on a run."""
