"""Read tables: CSV or Parquet files with a column to predict."""

from .files import SUFFIXES, table_files
from .kind import Table
from .reading import decode_tables

__all__ = ["SUFFIXES", "Table", "decode_tables", "table_files"]
