"""Aggregation of the clients' updates: folds, robust means, flat vectors, a rule's state."""
