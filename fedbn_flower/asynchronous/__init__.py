"""Asynchronous protocols: the model is updated whenever enough answers are there."""
