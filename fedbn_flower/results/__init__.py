"""A run's results: its folder, checkpoints, tables and figures."""
