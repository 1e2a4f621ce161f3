"""Exports of models, figures and tables."""
