"""Sections of a report that say what is statistically so."""
