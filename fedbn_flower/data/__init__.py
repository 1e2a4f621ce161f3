"""Datasets: decoded once to memory-mapped arrays, and divided among clients."""

from .decoded import DecodedDataset, DecodedSplit, load_dataset
from .partition import Partitions, partition_dataset

__all__ = ["DecodedDataset", "DecodedSplit", "Partitions", "load_dataset", "partition_dataset"]
