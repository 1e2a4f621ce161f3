"""Figures of a divided dataset: features by client, and some images of each client."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.problems.segmentation import VOID
from fedbn_flower.clients.problems.surfaces import fullest_slices as fullest

from ..data.statistics import Feature
from ..results.plotting.plots import NAME_LENGTH, TICK_LENGTH, line_style, new_figure, plain
from ..results.terminal import shorten_middle

if TYPE_CHECKING:
    from ..results.plotting.svg_figure import InlineFigure

COLUMNS = 3
PANEL = 2.6  # inches
IMAGE = 0.6  # inches
PIXELS = 64  # a side, at least, above which an image is thinned out
OUTLINE = "#d55e00"  # vermilion, seen on grey and by the colour-blind
ROTATED = 4  # values of a category, above which their names are turned


def feature_histograms(
    features: Sequence[Feature], clients: Sequence[int], names: Sequence[str]
) -> "InlineFigure":
    """Draw the share of each client's values in each bin: a panel a feature, a line a client."""
    columns = min(COLUMNS, len(features))
    rows = -(-len(features) // columns)
    figure = new_figure(PANEL * columns + 1.2, 0.8 * PANEL * rows + 0.2)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(features) :]:
        panel.set_axis_off()
    for axes, feature in zip(panels, features, strict=False):
        for number, client in enumerate(clients):
            counts = feature.counts[client]
            style = line_style(number, 2)
            colour, line = style["color"], style.get("linestyle", "-")
            label = f"client {plain(names[client])}"
            axes.stairs(
                counts / max(1, counts.sum()), feature.edges, color=colour, linestyle=line, label=label
            )
        axes.set_title(plain(shorten_middle([feature.name], NAME_LENGTH)[0]), fontsize="small")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize="x-small")
        if feature.values:
            values = map(plain, shorten_middle(list(feature.values), TICK_LENGTH))
            turned = {"rotation": 30, "ha": "right"} if len(feature.values) > ROTATED else {}
            axes.set_xticks(feature.edges[:-1] + 0.5, values, **turned)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize="small")
    return figure


def in_8_bits(images: Sequence[NDArray]) -> list[NDArray[np.uint8]]:
    """Return images of 16 bits as uint8, stretched between their extremes; others as they are."""
    if images[0].dtype == np.uint8:
        return list(images)
    low, high = min(map(np.min, images)), max(map(np.max, images))
    spread = max(1, int(high) - int(low))
    return [np.rint((some.astype(np.float64) - low) * (255 / spread)).astype(np.uint8) for some in images]


def fullest_slices(
    volumes: Sequence[NDArray], masks: Sequence[NDArray[np.uint8]] | None = None
) -> tuple[list[NDArray], list[NDArray[np.uint8]] | None]:
    """Return a slice of each volume (n, channels, depth, height, width) of each client, and of its mask.

    It is the one whose mask has most that is neither background nor void; without masks, or of equal ones,
    the one nearest to the middle.
    """
    found, of_masks = [], []
    for number, some in enumerate(volumes):
        shape = len(some), *some.shape[2:]
        nothing = np.zeros(shape, bool)
        places = fullest((masks[number] > 0) & (masks[number] != VOID) if masks else nothing)
        found.append(some[np.arange(len(some)), :, places])
        of_masks += [masks[number][np.arange(len(some)), places]] if masks else []
    return found, of_masks or None


def image_rows(
    images: Sequence[NDArray],
    names: Sequence[str],
    masks: Sequence[NDArray[np.uint8]] | None = None,
) -> "InlineFigure":
    """Draw images, uint8 or uint16 (n, channels, height, width) of each client: a row a client.

    ``masks``, uint8 (n, height, width) of each client, are drawn as the outlines of their classes.
    """
    columns, images = max(map(len, images)), in_8_bits(images)
    figure = new_figure(IMAGE * columns + 1.2, IMAGE * len(images))
    panels = figure.subplots(len(images), columns, squeeze=False)
    for number, (row, some, name) in enumerate(zip(panels, images, names, strict=True)):
        for axes in row:
            axes.set_axis_off()
        step = max(1, min(some.shape[2:]) // PIXELS)
        for axes, image in zip(row, some[:, :, ::step, ::step], strict=False):
            if len(image) == 3:
                axes.imshow(image.transpose(1, 2, 0))
            else:  # the first channel
                axes.imshow(image[0], cmap="gray", vmin=0, vmax=255)
        for axes, mask in zip(row, masks[number][:, ::step, ::step] if masks else (), strict=False):
            edges = np.unique(mask)[1:] - 0.5
            if len(edges):
                axes.contour(mask, edges, colors=OUTLINE, linewidths=0.8)
        row[0].text(
            -0.15, 0.5, plain(shorten_middle([name], TICK_LENGTH)[0]), transform=row[0].transAxes,
            ha="right", va="center", fontsize="small",
        )  # fmt: skip
    return figure
