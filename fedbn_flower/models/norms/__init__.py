"""What stands in the place of a model's BatchNorm layers, one file each."""

from .base import Norm
from .groups import Group, Instance, Layer
from .hybrid import Hybrid
from .keep import Keep
from .nothing import Nothing
from .scaled_ws import ScaledWS

NORMS: dict[str, type[Norm]] = {
    "keep": Keep,
    "group": Group,
    "layer": Layer,
    "instance": Instance,
    "none": Nothing,
    "scaled-ws": ScaledWS,
    "hybrid": Hybrid,
}
"""Built-in norms by name. To add one, import it above and enter it here."""

__all__ = ["NORMS", "Norm"]
