"""How a round is evaluated: by the server, by clients, with training, on halves, case by case."""
