"""The mean of the clients' updates: folds, robust means, vectors, a rule's state."""
