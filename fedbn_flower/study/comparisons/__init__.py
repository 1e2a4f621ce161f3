"""What the rows of a table are told apart by: over seeds, on the same cases, over sites or data sets."""
