"""Doubts about data, one line each: what is no mistake, but hardly meant. And a page on data."""
