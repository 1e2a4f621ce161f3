"""Pictures, masks and folders as people have them."""

from . import folders, mask_files, picture_files, picture_tables, unread
from .case import Case

CASES: list[Case] = [
    case for module in (folders, picture_files, picture_tables, mask_files, unread) for case in module.CASES
]
"""Each with what a run says of it, or the line by which it is refused."""
