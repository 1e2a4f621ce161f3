"""Datasets: decode once to memory-mapped columns, and partition among clients."""

from .cache import cache_folder, load_dataset
from .dataset import Dataset, Kind, Request
from .images.kind import Images
from .numeric import Numeric
from .partition.partition import Partitions, partition_dataset
from .sources import MADE

__all__ = [
    "MADE",
    "Dataset",
    "Images",
    "Kind",
    "Numeric",
    "Partitions",
    "Request",
    "cache_folder",
    "load_dataset",
    "partition_dataset",
]
