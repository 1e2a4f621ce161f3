"""Doubts about data, one line each: what is no mistake, but hardly meant.

Only the warnings of a run and the command ``inspect`` import it.
"""
