"""Tables as people have them, and what is said of each before a run."""

from . import table_doubts, table_files, table_labels, table_layouts, table_values

CASES = [
    *table_layouts.CASES,
    *table_values.CASES,
    *table_doubts.CASES,
    *table_files.CASES,
    *table_labels.CASES,
]
