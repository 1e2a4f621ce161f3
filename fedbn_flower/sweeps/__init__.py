"""Sweeps: several runs from flags or an experiment file, with one table of results; they can be resumed."""
