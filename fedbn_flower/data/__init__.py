"""Datasets: decode once to memory-mapped columns, and partition among clients."""

from .cache import cache_folder, load_dataset
from .dataset import Dataset, Request
from .partition.partition import Partitions, partition_dataset
from .sources import MADE

__all__ = ["MADE", "Dataset", "Partitions", "Request", "cache_folder", "load_dataset", "partition_dataset"]
