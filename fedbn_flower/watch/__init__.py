"""Watch runs: a table of all runs below a folder, in the terminal and on a page that follows them."""
