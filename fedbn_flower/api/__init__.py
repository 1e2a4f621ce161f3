"""The Python interface: `simulate`, `Result`, data of one's own."""
