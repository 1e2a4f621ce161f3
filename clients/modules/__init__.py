"""Parts of a model: BatchNorm, the head, parameter names."""
