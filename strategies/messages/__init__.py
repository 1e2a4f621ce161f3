"""What travels between server and nodes: names, arrays, checks of replies."""
