"""Differential privacy: what a mechanism adds, and what epsilon that gives."""
