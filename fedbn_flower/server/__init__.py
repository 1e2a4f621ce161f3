"""The server of a run: its rounds, who takes part, evaluation. It imports nothing of the sites."""
