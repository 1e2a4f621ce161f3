"""Messages between server and nodes: names, array encoding, checks of replies."""
