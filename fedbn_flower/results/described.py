"""What ``config.json`` says of a run."""

import platform
from importlib.metadata import version

from .. import __version__
from ..assembly import client_names, evaluates_locally
from ..rounds import Federation

PACKAGES = ("flwr", "flwr-datasets", "ray", "torch", "torchvision", "numpy")


def described(federation: Federation) -> dict[str, object]:
    """The configuration with every setting of its algorithms, what inputs look like, and what it ran on."""
    versions = {name: version(name) for name in PACKAGES}
    return {
        **federation.config.to_user_config(),
        "eval-data": "local" if evaluates_locally(federation.config) else "global",
        "resume": "",
        "shape": federation.dataset.spec.as_dataset(),
        "data": federation.dataset.digest,
        "client-names": client_names(federation.config),
        "versions": {"fedbn-flower": __version__, "python": platform.python_version(), **versions},
    }
