"""Parts of a model: BatchNorm, the head, parameter names. Its optimiser, and random generators."""
