"""The page of a dataset and its division, before anything is trained."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....data.images.kind import Images
from ....data.statistics import MAX_FEATURES, inputs_of_client, masks_of_client, sampled_images, spread
from ....job.inputs import RunInputs
from ...plotting.data_plots import feature_histograms, fullest_slices, image_rows
from ...plotting.plots import class_counts as counts_figure
from ...run_reader import dataset_name
from ..html import folded, gallery, key_values, page, paragraph, section, warning
from ..tables import Table
from .contents import EXAMPLES, MAX_LISTED, Inspection

if TYPE_CHECKING:
    from ...plotting.svg_figure import InlineFigure

PAGE = "inspect.html"
MAX_DRAWN = 8  # clients in a figure of features or images
IMAGES = 10  # of a client
FULLEST = "that in which most is not background"


def inspect_page(found: Inspection) -> str:
    """Return the page."""
    inputs = found.inputs
    dataset = dataset_name(inputs.config.dataset)
    more = len(found.names) - MAX_LISTED
    shown = f"The first {MAX_LISTED} of {len(found.names)} clients." if more > 0 else ""
    return page(
        f"{dataset}, before training",
        paragraph(found.lead) + key_values(found.facts()),
        [
            warning("Warnings", *map(paragraph, found.warnings)),
            section("What is learnt", found.learnt().html()),
            section(
                "Clients",
                gallery({"Training examples by client": _sizes(found)}),
                found.clients().html(),
                paragraph(shown, "note") if shown else "",
                paragraph(MEASURES, "note") if found.skew is not None else "",
            ),
            section("Features", *_features(found)),
            section("Images", *_images(inputs, found.names)),
        ],
    )


MEASURES = (
    "Total variation: half the sum of the differences between a client's shares of the classes and those of "
    "all clients. Jensen-Shannon: the root of the divergence of the two, to base 2. Both are 0 for equal "
    "shares and at most 1. Effective classes: the exponential of the entropy of the shares."
)


def _sizes(found: Inspection) -> "InlineFigure":
    inputs = found.inputs
    counts, names = found.counts, inputs.dataset.output_names
    if counts is None:
        counts, names = np.array(found.sizes[EXAMPLES])[:, None], [""]
    named = found.names != list(map(str, range(len(found.names))))
    return counts_figure(counts, names, found.division, found.names if named else None)


def _features(found: Inspection) -> Iterator[str]:
    if not found.features:
        return
    drawn = list(range(min(MAX_DRAWN, len(found.names))))
    first = [feature for feature in found.features if np.isfinite(feature.edges).all()][:MAX_FEATURES]
    if first:
        histograms = feature_histograms(first, drawn, found.names)
        yield gallery({"Share of the values by client": histograms}, wide=True)
    yield found.feature_table().html()
    notes = ["Features are as they are read, before a client scales them."]
    if len(drawn) < len(found.names):
        notes.append(f"The figure has the first {len(drawn)} of {len(found.names)} clients.")
    if len(found.inputs.dataset.spec.shape) >= 3:
        most = sampled_images(found.inputs.dataset)
        notes.append(f"Intensities are those of at most {most} images a client.")
    yield paragraph(" ".join(notes), "note")
    if any(feature.missing.any() for feature in found.features):
        yield folded("Missing values by client", _missing(found).html())


def _missing(found: Inspection) -> Table:
    lacking = [feature for feature in found.features if feature.missing.any()]
    rows = [
        [name, *(str(feature.missing[i]) for feature in lacking)]
        for i, name in enumerate(found.names[:MAX_LISTED])
    ]
    return Table(["client", *(feature.name for feature in lacking)], rows)


def _images(inputs: RunInputs, names: Sequence[str]) -> Iterator[str]:
    dataset, shift = inputs.dataset, inputs.config.feature_shift
    if not isinstance(dataset.kind, Images):
        return
    rows = [spread(rows, IMAGES) for rows in inputs.partitions.train[:MAX_DRAWN]]
    some = [inputs_of_client(dataset, part, shift, client) for client, part in enumerate(rows)]
    masks = None
    if dataset.has_masks:
        masks = [masks_of_client(dataset, part, shift, client) for client, part in enumerate(rows)]
    notes = " Lines are the outlines of the masks' classes." if masks else ""
    axes = "channels, height, width"
    if len(dataset.spec.shape) > len(axes.split(",")):
        axes = "channels, depth, height, width"
        some, masks = fullest_slices(some, masks)
        notes = f" Of each volume one slice is drawn, {FULLEST if masks else 'the middle one'}.{notes}"
    sizes = f"{' x '.join(map(str, dataset.spec.shape))} values ({axes})"
    yield paragraph(f"All images have {sizes}.{notes}")
    clients = [f"client {name}" for name in names[:MAX_DRAWN]]
    yield gallery({"Images by client": image_rows(some, clients, masks)}, wide=True)
