"""The server rules: one file for each family."""
