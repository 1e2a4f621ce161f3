"""Tables: a file of rows, with a column to be predicted."""

from .files import SUFFIXES, table_files
from .kind import Table
from .reading import tables_decoded

__all__ = ["SUFFIXES", "Table", "table_files", "tables_decoded"]
