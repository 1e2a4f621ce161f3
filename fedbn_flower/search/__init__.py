"""Searching for the values of keys with which a run does best on its validation share."""
