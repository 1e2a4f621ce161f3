"""A strategy of its own: a learning rate for each round, the best model kept."""
