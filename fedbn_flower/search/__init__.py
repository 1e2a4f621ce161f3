"""Hyper-parameter search: find the values with which a run is best on its validation share."""
