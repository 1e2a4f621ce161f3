"""Other people's Flower apps on this project's grids."""
