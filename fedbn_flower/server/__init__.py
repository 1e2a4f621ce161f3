"""The protocol of a run: its inputs, the clients' tasks, the server rule, the rounds."""
