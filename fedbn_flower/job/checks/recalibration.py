"""Check that the clients' scores can be recalibrated by site."""

from collections.abc import Iterator

from fedbn_flower.clients import Classification, MultiLabel

from ...core.errors import Conflict
from ..inputs import RunInputs

FEW = 50
"""Fewer validation examples at a site give a warning."""


def of_few_cases(inputs: RunInputs) -> Iterator[str]:
    """Yield a warning of sites that recalibrate on few validation examples."""
    if inputs.config.recalibrate == "none" or not inputs.dataset.has_examples:
        return
    held_out = inputs.held_out_clients
    sizes = {i: int(n) for i, n in enumerate(inputs.partitions.val.sizes) if i not in held_out}
    few = [client for client, size in sizes.items() if size < FEW]
    if few:
        name = inputs.client_names[few[0]] if inputs.client_names else few[0]
        yield (
            f"recalibrate: {len(few)} of {len(sizes)} clients have fewer than {FEW} validation examples "
            f"(client {name} has {sizes[few[0]]}), so what they fit is uncertain"
        )


def of_recalibration(inputs: RunInputs) -> Iterator[Conflict]:
    """Yield why scores cannot be recalibrated: there are no scores of classes or labels, the method is for
    two classes only, or clients are not evaluated on examples of their own."""
    config, dataset = inputs.config, inputs.dataset
    method = config.recalibrate
    if method == "none":
        return
    predicted = type(dataset.problem).predicted
    if predicted not in (Classification.predicted, MultiLabel.predicted):
        what = dataset.spec.predicts if config.problem == "auto" else f"problem {config.problem!r}"
        wanted = f"'none' with {what}: there are no scores of classes or labels"
        yield Conflict("recalibrate", method, wanted)
    classes = dataset.spec.outputs if predicted is Classification.predicted else 2
    if classes > 2 and method != "temperature":
        yield Conflict("recalibrate", method, f"'none' or 'temperature' with {classes} classes, not two")
    if dataset.has_examples and not inputs.evaluates_locally:
        wanted = "'none' without eval-data 'local': no site has a validation share of its own"
        yield Conflict("recalibrate", method, wanted)
