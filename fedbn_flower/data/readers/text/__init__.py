"""Read text, by characters or by tokens."""
