"""Ground: errors, files, the words of a command line; nothing here knows what a run is."""
