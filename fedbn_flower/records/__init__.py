"""Plain data that pass between the floors: what a round gave, its metrics, a checkpoint."""
