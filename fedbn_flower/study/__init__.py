"""What is statistically so of runs and sweeps, and what a paper says of them."""
