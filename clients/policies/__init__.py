"""What stays at home: one file for each policy."""
