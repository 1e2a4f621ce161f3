"""A run's configuration: keys, algorithms by name, defaults, what goes with what."""
