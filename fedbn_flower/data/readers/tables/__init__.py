"""Read tables: CSV or Parquet files with a column to predict."""

from .decoding import decode_tables
from .kind import Table
from .table_file import SUFFIXES, table_files

__all__ = ["SUFFIXES", "Table", "decode_tables", "table_files"]
