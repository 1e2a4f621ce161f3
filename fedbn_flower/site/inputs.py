"""A site's inputs: its data and initial weights, at the paths that its owner configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import UserConfigValue

from fedbn_flower.clients import LocalTask
from fedbn_flower.clients.modules.lazy_torch import torch

from ..config.run_config import RunConfig
from ..core.errors import UserError, not_allowed
from ..data.images.moments import Scale
from ..job.inputs import RunInputs, inputs_of
from ..job.tasks import task_of
from ..names import STRATEGY


def local_task(
    config: RunConfig,
    partition_id: int | None,
    node_config: Mapping[str, UserConfigValue],
    scale: Scale | None = None,
) -> LocalTask:
    """The task of the client of a partition.

    A node with a ``data-path`` trains on that folder's training set and is tested on its test set. Decoded
    data are cached in the node's ``cache-dir``, and the server does not learn the classes of the examples.
    ``scale`` is computed over all such nodes, with ``normalize``.

    Raises
    ------
    UserError
        When there is no such partition, or the data cannot be read.
    """
    torch.set_num_threads(1)  # the number of threads changes the order of sums, and so the bits
    return task_of(inputs_at(config, node_config, scale), partition_id or 0)


def inputs_at(
    config: RunConfig, node_config: Mapping[str, UserConfigValue], scale: Scale | None = None
) -> RunInputs:
    """The inputs of a run at a node, whose node config may name its data and its copy of ``init``."""
    place: tuple[Any, ...] = ()
    if "data-path" in node_config:
        if config.attack != "none":
            raise not_allowed("attack", config.attack, "'none' at a node with data of its own (data-path)")
        if STRATEGY.find(config.strategy).in_simulations_only:
            wanted = "another one at a node with data of its own (data-path): it is for simulations"
            raise not_allowed("strategy", config.strategy, wanted)
        place = str(node_config["data-path"]), str(node_config.get("cache-dir", "auto")), scale
    if config.init and (init := node_config.get("init")):
        config = config.model_copy(update={"init": str(init)})
    return inputs_of(config, *place)


def check_start(inputs: RunInputs, digest: str) -> None:
    """Refuse local initial weights that differ from the server's, which have this digest.

    Raises
    ------
    UserError
        When the digests differ.
    """
    if digest != inputs.digest_of_start:
        raise UserError(
            "init: the frozen or pretrained weights here are not the server's; expected the same model and "
            "the same file, which the node config may name (init=FILE)"
        )
