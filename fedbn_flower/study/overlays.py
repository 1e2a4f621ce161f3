"""Held-out images with the outlines of their masks, drawn for a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.problems.segmentation import VOID

from ..results.plotting.plots import COLOURS, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..results.plotting.svg_figure import InlineFigure

COLUMNS = 3
PANEL = 1.9  # inches
STYLES: tuple[tuple[str, str, Literal["-", "--"]], ...] = (
    ("reference", COLOURS[1], "-"),
    ("prediction", COLOURS[4], "--"),
)
"""Of both outlines: the name, a colour that is seen on grey, and the dashes."""


def overlays(
    images: NDArray[np.uint8],
    references: NDArray[np.uint8],
    predictions: NDArray[np.uint8],
    titles: Sequence[str],
) -> InlineFigure:
    """Draw images (n, channels, height, width), three in a row, with outlines of both masks (n, ...)."""
    from matplotlib.lines import Line2D

    rows = -(-len(images) // COLUMNS)
    figure = new_figure(PANEL * COLUMNS, (PANEL + 0.2) * rows + 0.3)
    panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes in panels:
        axes.set_axis_off()
    for axes, image, *masks, title in zip(panels, images, references, predictions, titles, strict=False):
        axes.set_title(plain(title), fontsize="x-small")
        if len(image) == 3:
            axes.imshow(image.transpose(1, 2, 0), interpolation="none")
        else:  # the first channel
            axes.imshow(image[0], cmap="gray", vmin=0, vmax=255, interpolation="none")
        for mask, (_, colour, dashes) in zip(masks, STYLES, strict=True):
            _outline(axes, mask, colour, dashes)
    lines = [Line2D([], [], color=colour, linestyle=dashes) for _, colour, dashes in STYLES]
    names = [name for name, _, _ in STYLES]
    figure.legend(lines, names, loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure


def _outline(axes: Axes, mask: NDArray[np.uint8], colour: str, dashes: str) -> None:
    """Draw the outline of each class of a mask but the background; void pixels belong to none."""
    if min(mask.shape) < 2:
        return
    for number in np.unique(mask):
        if number not in (0, VOID):
            inside = np.pad(mask == number, 1)  # so that an outline is closed at the edge of the image
            places = (np.arange(size + 2) - 1 for size in mask.shape[::-1])
            axes.contour(*places, inside, [0.5], colors=colour, linestyles=dashes, linewidths=1.0)
