"""The figures of a run, as PNG files and inside the report."""
