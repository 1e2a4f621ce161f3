"""Which rows each client holds."""
