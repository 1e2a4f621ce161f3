"""What a model is made of: BatchNorm, the head, names of parameters."""
