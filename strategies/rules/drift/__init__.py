"""Rules that correct the drift of clients by momentum, dual variables or what the server knows."""
