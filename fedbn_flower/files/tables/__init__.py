"""Read tables: text, Parquet or Excel files with a column to predict."""

from .decoding import decode_tables
from .files import FILE, has_pictures, name_sites, table_files, unread_tables
from .header import is_text_table
from .table_file import SUFFIXES

__all__ = [
    "FILE",
    "SUFFIXES",
    "decode_tables",
    "has_pictures",
    "is_text_table",
    "name_sites",
    "table_files",
    "unread_tables",
]
