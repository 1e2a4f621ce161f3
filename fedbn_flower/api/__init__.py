"""The Python interface: `simulate`, `Result`, and data passed as arrays or Datasets."""
