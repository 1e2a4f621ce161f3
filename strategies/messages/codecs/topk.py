"""Top-k: Stich et al. 2018, "Sparsified SGD with Memory" (arXiv 1809.07599)."""

import numpy as np
from numpy.typing import NDArray

from .base import Codec, Codes, Layout, check_share, count_of


class TopK(Codec):
    """The share ``topk:SHARE`` of the values that are largest in magnitude, with their positions."""

    paper = "stich2018sparsified"
    needs_feedback = True

    def __init__(self, argument: str = "", feedback: bool | None = None) -> None:
        super().__init__("", feedback)
        self.share = check_share("topk", argument)

    def layout(self, size: int) -> Layout:
        kept = (count_of(self.share, size),)
        return {"indices": (kept, "uint32"), "values": (kept, "float32")}

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        kept = count_of(self.share, vector.size)
        order = np.argsort(-np.abs(vector), kind="stable")  # of equal ones the first
        indices = np.sort(order[:kept]).astype(np.uint32)
        return {"indices": indices, "values": vector[indices]}

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        indices = codes["indices"].astype(np.int64)
        if indices.size and (indices[-1] >= size or (np.diff(indices) <= 0).any()):
            raise ValueError(f"indices: not in increasing order below {size}")
        vector = np.zeros(size, np.float32)
        vector[indices] = codes["values"]
        return vector
