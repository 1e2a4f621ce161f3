"""The server of a run: its rounds, participation, evaluation. It imports nothing from the site package."""
