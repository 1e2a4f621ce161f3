"""Numbers, used as they are."""

from ..models.spec import InputSpec
from .dataset import Kind


class Numeric(Kind):
    """``x`` float32 (N, ...), ``y`` class numbers or float32 (N, values); facts: ``predicts`` and ``outputs``
    of the `InputSpec`."""

    def spec(self) -> InputSpec:
        return InputSpec(self.train["x"].shape[1:], self.facts["outputs"], self.facts["predicts"])
