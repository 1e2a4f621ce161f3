"""The files that a run goes on from: the server's, and one a client."""
