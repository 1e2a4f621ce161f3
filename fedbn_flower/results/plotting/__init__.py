"""The figures of a run, as PNG files and in the report."""
