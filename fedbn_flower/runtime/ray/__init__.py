"""Ray actors as a federation's nodes."""
