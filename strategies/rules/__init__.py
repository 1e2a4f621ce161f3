"""The server rules: one file each."""
