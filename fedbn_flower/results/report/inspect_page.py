"""The page of a dataset and its division, before anything is trained."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...data.images.kind import Images
from ...data.statistics import (
    MAX_FEATURES,
    Counts,
    Feature,
    LabelSkew,
    Numbers,
    class_counts,
    class_shares,
    features,
    gini,
    inputs_of_client,
    masks_of_client,
    sampled_images,
    spread,
)
from ...data.targets import of_targets
from ...federation.inputs import RunInputs
from ...records.columns import TEST, VALIDATION
from ..plotting.data_plots import feature_histograms, image_rows
from ..plotting.plots import class_counts as counts_figure
from ..run_reader import dataset_name
from .html import folded, gallery, key_values, page, paragraph, section, warning
from .tables import Table

if TYPE_CHECKING:
    from ..plotting.svg_figure import InlineFigure

MAX_DRAWN = 8  # clients in a figure of features or images
MAX_LISTED = 30  # clients in a table
IMAGES = 10  # of a client
MAX_CLASSES = 10  # of masks, in a table


@dataclass(frozen=True, eq=False)
class Inspection:
    """What is to be said of a run's data."""

    inputs: RunInputs

    @cached_property
    def names(self) -> list[str]:
        """The clients' names, or their numbers."""
        return list(self.inputs.client_names) or [str(i) for i in range(self.inputs.config.num_clients)]

    @cached_property
    def counts(self) -> Counts | None:
        """Training examples by client and class; None without classes."""
        inputs = self.inputs
        return class_counts(inputs.dataset, inputs.partitions.train) if inputs.dataset.has_classes else None

    @cached_property
    def shares(self) -> Numbers | None:
        """Shares of the classes in the pixels of the masks, (clients, classes); None without masks."""
        inputs = self.inputs
        return class_shares(inputs.dataset, inputs.partitions.train) if inputs.dataset.has_masks else None

    @cached_property
    def skew(self) -> LabelSkew | None:
        return None if self.counts is None else LabelSkew.of(self.counts)

    @cached_property
    def features(self) -> list[Feature]:
        inputs = self.inputs
        return features(inputs.dataset, inputs.partitions.train, inputs.config.feature_shift)

    def facts(self) -> dict[str, str]:
        """Return the dataset and the measures of its division, by name."""
        dataset, config, partitions = self.inputs.dataset, self.inputs.config, self.inputs.partitions
        sizes = [len(rows) for rows in partitions.train]
        found = {
            "inputs": str(dataset.spec),
            "training examples": str(len(dataset.train)),
            "test examples": str(len(dataset.test)),
            "clients": str(config.num_clients),
            "training examples of a client": f"{min(sizes)} to {max(sizes)}, median {np.median(sizes):g}",
            "Gini coefficient of sizes": f"{gini(sizes):.3f}",
        }
        if self.skew is not None and self.counts is not None:
            of_all = LabelSkew.of(self.counts.sum(0, keepdims=True)).effective_classes[0]
            found |= {
                "label skew, total variation": _mean_and_most(self.skew.total_variation),
                "label skew, Jensen-Shannon": _mean_and_most(self.skew.jensen_shannon),
                "effective classes of a client": f"{self.skew.effective_classes.mean():.2f} of {of_all:.2f}",
            }
        return found

    def clients(self) -> Table:
        """Return a row per client: examples, classes and label skew, or the shares of the masks' classes."""
        partitions, skew = self.inputs.partitions, self.skew
        shares = {"training examples": partitions.train, VALIDATION: partitions.val, TEST: partitions.test}
        used = {name: rows for name, rows in shares.items() if any(map(len, rows))}
        header = ["client", *used]
        if skew is not None:
            header += ["classes", "effective classes", "total variation", "Jensen-Shannon"]
        if self.shares is not None:
            header += [f"pixels of class {number}" for number in range(self.shares.shape[1])[:MAX_CLASSES]]
        rows = []
        for i, name in enumerate(self.names[:MAX_LISTED]):
            row = [name, *(str(len(rows[i])) for rows in used.values())]
            if skew is not None:
                measures = skew.total_variation, skew.jensen_shannon
                row += [str(skew.present[i]), f"{skew.effective_classes[i]:.2f}"]
                row += [f"{measure[i]:.3f}" for measure in measures]
            if self.shares is not None:
                row += [f"{share:.1%}" for share in self.shares[i, :MAX_CLASSES]]
            rows.append(row)
        return Table(header, rows)

    def feature_table(self) -> Table:
        """Return a row per feature: over all clients, and the range of the clients' means."""
        rows = []
        for feature in self.features:
            missing = int(feature.missing.sum())
            count = int(feature.counts.sum()) + missing
            means = feature.mean[~np.isnan(feature.mean)]
            spans = ["", "", ""]
            if len(means):
                stds = feature.std[~np.isnan(feature.std)]
                spans = [f"{feature.edges[0]:.4g} to {feature.edges[-1]:.4g}", _span(means), _span(stds)]
            rows.append([feature.name, *spans, f"{missing} ({missing / count:.1%})" if missing else "0"])
        return Table(["feature", "range", "clients' means", "clients' deviations", "missing"], rows)

    def notes(self) -> Iterator[str]:
        """Yield what is said of the data before a run, too."""
        dataset, config, partitions = self.inputs.dataset, self.inputs.config, self.inputs.partitions
        yield from dataset.notes
        yield from of_targets(dataset, partitions.train)
        if line := partitions.left_out(config.partition, self.inputs.evaluates_locally):
            yield line


def inspect_page(found: Inspection) -> str:
    """Return the page."""
    inputs, config = found.inputs, found.inputs.config
    dataset = dataset_name(config.dataset)
    lead = f"{dataset} divided by {config.partition} among {config.num_clients} clients, seed {config.seed}."
    more = len(found.names) - MAX_LISTED
    shown = f"The first {MAX_LISTED} of {len(found.names)} clients." if more > 0 else ""
    return page(
        f"{dataset}, before training",
        paragraph(lead) + key_values(found.facts()),
        [
            warning("Notes", *map(paragraph, found.notes())),
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
        counts, names = np.array([[len(rows)] for rows in inputs.partitions.train]), [""]
    return counts_figure(counts, names, inputs.config.partition, list(inputs.client_names) or None)


def _features(found: Inspection) -> Iterator[str]:
    if not found.features:
        return
    drawn = list(range(min(MAX_DRAWN, len(found.names))))
    first = found.features[:MAX_FEATURES]
    yield gallery({"Share of the values by client": feature_histograms(first, drawn, found.names)}, wide=True)
    yield found.feature_table().html()
    notes = ["Features are as they are read, before a client scales them."]
    if len(drawn) < len(found.names):
        notes.append(f"The figure has the first {len(drawn)} of {len(found.names)} clients.")
    if isinstance(found.inputs.dataset.kind, Images):
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
    if not isinstance(dataset.kind, Images) or len(dataset.spec.shape) != 3:
        return
    rows = [spread(rows, IMAGES) for rows in inputs.partitions.train[:MAX_DRAWN]]
    some = [inputs_of_client(dataset, part, shift, client) for client, part in enumerate(rows)]
    masks = None
    if dataset.has_masks:
        masks = [masks_of_client(dataset, part, shift, client) for client, part in enumerate(rows)]
    channels, height, width = dataset.spec.shape
    outlines = " Lines are the outlines of the masks' classes." if masks else ""
    sizes = f"{channels} x {height} x {width} values (channels, height, width)"
    yield paragraph(f"All images have {sizes}.{outlines}")
    clients = [f"client {name}" for name in names[:MAX_DRAWN]]
    yield gallery({"Images by client": image_rows(some, clients, masks)}, wide=True)


def _mean_and_most(values: np.ndarray) -> str:
    return f"mean {values.mean():.3f}, at most {values.max():.3f}"


def _span(values: np.ndarray) -> str:
    return f"{values.min():.4g} to {values.max():.4g}"
