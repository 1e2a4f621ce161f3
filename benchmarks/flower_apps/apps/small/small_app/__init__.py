"""An app without work."""
