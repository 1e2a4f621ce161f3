"""What a run leaves: its folder, checkpoints, tables and pictures."""
