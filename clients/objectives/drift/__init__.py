"""The clients' halves of `strategies.rules.drift`."""
