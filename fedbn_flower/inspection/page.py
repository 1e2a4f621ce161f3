"""What is to be said of a run's data and their division before anything is trained, and its page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..core.ground.columns import TEST, VALIDATION
from ..core.text import number_of
from ..data.images.kind import Images
from ..data.images.shift_spec import seen_by
from ..data.statistics import (
    MAX_FEATURES,
    Counts,
    Feature,
    Numbers,
    class_counts,
    class_pixels,
    features,
    inputs_of_client,
    sampled_images,
    spread,
)
from ..job.group_sides import sides_of
from ..job.inputs import RunInputs
from ..job.what_is_learnt import what_is_learnt
from ..results.plotting.plots import class_counts as counts_figure
from ..results.report.html import folded, gallery, key_values, page, paragraph, section, warning
from ..results.report.tables import Table
from ..results.run_reader import dataset_name
from .copies import warn_about_near_copies
from .figures import feature_histograms, fullest_slices, image_rows
from .skew import LabelSkew, gini, shares_of
from .warnings import warn_about_data

if TYPE_CHECKING:
    from ..results.plotting.svg_figure import InlineFigure

EXAMPLES = "training examples"
LEADING = (EXAMPLES, "test examples", "clients")
"""The facts at the top of the page."""
MAX_LISTED = 30  # clients in a table
MAX_CLASSES = 10  # in a table


@dataclass(frozen=True, eq=False)
class Inspection:
    """What is to be said of a run's data."""

    inputs: RunInputs

    @property
    def division(self) -> str:
        """Who or what divided the data."""
        return self.inputs.config.partition

    @cached_property
    def names(self) -> list[str]:
        """The clients' names, or their numbers."""
        return list(self.inputs.client_names) or [str(i) for i in range(self.inputs.config.num_clients)]

    @cached_property
    def sizes(self) -> dict[str, list[int]]:
        """The clients' numbers of examples, by share."""
        shares = self.inputs.partitions
        found = {EXAMPLES: shares.train, VALIDATION: shares.val, TEST: shares.test}
        return {name: [len(rows) for rows in split] for name, split in found.items()}

    @property
    def examples(self) -> tuple[int, int]:
        """The numbers of all training and test examples."""
        train, validation, test = self.inputs.sizes
        return train + validation, test

    @property
    def lead(self) -> str:
        config = self.inputs.config
        dataset = dataset_name(config.dataset)
        clients = number_of(len(self.names), "client")
        return f"{dataset} divided by {config.partition} among {clients}, seed {config.seed}."

    @cached_property
    def counts(self) -> Counts | None:
        """Training examples by client and class; None without classes."""
        inputs = self.inputs
        return class_counts(inputs.dataset, inputs.partitions.train) if inputs.dataset.has_classes else None

    @cached_property
    def shares(self) -> Numbers | None:
        """Shares of the classes in the pixels of the masks, (clients, classes); None without masks."""
        inputs = self.inputs
        if not inputs.dataset.has_masks:
            return None
        return shares_of(class_pixels(inputs.dataset, inputs.partitions.train))

    @cached_property
    def skew(self) -> LabelSkew | None:
        return None if self.counts is None else LabelSkew.of(self.counts)

    @cached_property
    def features(self) -> list[Feature]:
        inputs = self.inputs
        return features(inputs.dataset, inputs.partitions.train, inputs.config.feature_shift)

    def facts(self) -> dict[str, str]:
        """Return the dataset and the measures of its division, by name."""
        sizes, (train, test) = self.sizes[EXAMPLES], self.examples
        found = {
            "training examples": f"{train:,}",
            "test examples": f"{test:,}",
            "clients": f"{len(self.names):,}",
            "inputs": str(self.inputs.dataset.spec),
            f"{EXAMPLES} of a client": f"{min(sizes):,} to {max(sizes):,}, median {np.median(sizes):,g}",
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
        """Return a row per client: examples, of few classes by class, and label skew; or shares of masks."""
        skew, names = self.skew, self.inputs.dataset.output_names
        counts = self.counts if self.counts is not None and len(names) <= MAX_CLASSES else None
        used = {name: sizes for name, sizes in self.sizes.items() if any(sizes)}
        header = ["client", *used]
        if counts is not None:
            header += [f"class {name}" for name in names]
        if skew is not None:
            header += ["classes", "effective classes", "total variation", "Jensen-Shannon"]
        if self.shares is not None:
            header += [f"pixels of class {name}" for name in names[:MAX_CLASSES]]
        rows = []
        for i, name in enumerate(self.names[:MAX_LISTED]):
            of_classes = [] if counts is None else counts[i]
            row = [name, *(f"{n:,}" for n in (*(sizes[i] for sizes in used.values()), *of_classes))]
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
                spans = [feature.range, _span(means), _span(stds)]
            rows.append([feature.name, *spans, f"{missing} ({missing / count:.1%})" if missing else "0"])
        return Table(["feature", "range", "clients' means", "clients' deviations", "missing"], rows)

    def learnt(self) -> Table:
        """Return what is learnt, from what and from whom."""
        return Table.of_learnt(what_is_learnt(self.inputs))

    @cached_property
    def warnings(self) -> list[str]:
        """What a run of these data warns of, too, and test examples that are near copies."""
        train, validation, test = sides_of(self.inputs)
        near = warn_about_near_copies(self.inputs.dataset, np.concatenate([train, validation]), test)
        return [*warn_about_data(self.inputs), *near]


def _mean_and_most(values: np.ndarray) -> str:
    return f"mean {values.mean():.3f}, at most {values.max():.3f}"


def _span(values: np.ndarray) -> str:
    return f"{values.min():.4g} to {values.max():.4g}"


PAGE = "inspect.html"
MAX_DRAWN = 8  # clients in a figure of features or images
IMAGES = 10  # of a client
FULLEST = "that in which most is not background"


def inspect_page(found: Inspection) -> str:
    """Return the page."""
    inputs = found.inputs
    dataset = dataset_name(inputs.config.dataset)
    more = len(found.names) - MAX_LISTED
    facts = found.facts()
    leading = {name: facts.pop(name) for name in LEADING}
    measures = Table(["of the division", ""], [[name, value] for name, value in facts.items()], words=2)
    shown = f"The first {MAX_LISTED} of {len(found.names)} clients." if more > 0 else ""
    return page(
        f"{dataset}, before training",
        paragraph(found.lead) + key_values(leading),
        [
            warning("Warnings", *map(paragraph, found.warnings)),
            section("What is learnt", found.learnt().html()),
            section(
                "Clients",
                gallery({"Training examples by client": _sizes(found)}),
                found.clients().html(),
                paragraph(shown, "note") if shown else "",
                paragraph(MEASURES, "note") if found.skew is not None else "",
                folded("Measures of the division", measures.html()),
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
        columns = dataset.train.columns
        masks = [seen_by(columns, shift, client)["y"][part] for client, part in enumerate(rows)]
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
