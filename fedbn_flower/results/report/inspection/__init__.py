"""The page that ``inspect`` writes."""
