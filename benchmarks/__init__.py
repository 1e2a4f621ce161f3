"""Speed and memory, in ratios of sides that alternate."""
