"""What a private run guarantees: who is protected from whom, by how much, and assuming what."""

import html
from collections.abc import Iterator, Mapping
from math import exp
from typing import Any

from ....core.text import number_of
from ....privacy.in_words import (
    adapted,
    at_clients,
    in_doubt,
    keeps_sample,
    not_held,
    protected,
    who_was_asked,
)
from ....records.metrics import heading, shown
from ...plotting.report_plots import epsilon_curve
from ...run_reader import Run
from ..html import gallery, key_values, paragraph
from .client_tables import MODELS

SECURE = {
    "mechanism": "noise, drawn exactly",
    "grid-steps": "steps of its grid in its deviation",
    "accountant": "epsilon is found by",
}
"""What is said of secure noise."""


def privacy(run: Run) -> Iterator[str]:
    """Yield who is protected from whom, by how much, and assuming what."""
    found = run.summary.privacy
    if not found:
        return
    epsilon, only, how = found["epsilon"], not_held(found), at_clients(found)
    planned = number_of(found["planned-rounds"], "round")
    factor = exp(min(epsilon, 700))
    yield key_values(
        {
            f"epsilon, {found['claim']}" if only else "epsilon": f"{epsilon:.3f}",
            "delta": f"{found['delta']:g}",
            f"epsilon planned for {planned}": f"{found['planned-epsilon']:.3f}",
            "noise, deviation over the clip": f"{found['noise']:g}",
            **({"rounds over which noise is correlated": str(found["bands"])} if "bands" in found else {}),
            **({SECURE[key]: str(found[key]) for key in SECURE if key in found}),
            "models published": str(found["published"]),
        }
    )
    if only:
        yield paragraph(only)
    sender = "clients sent" if how else "server published"
    yield paragraph(
        f"From all models that the {sender} nobody can tell with certainty whether {in_doubt(found)}. "
        "Whatever somebody thinks of the odds of it beforehand, the models change these by a factor of "
        f"e^{epsilon:.3f} = {factor:.3g} at most, but for a probability of {found['delta']:g}."
    )
    if how:
        yield paragraph(f"{_protected(found)}{how}")
        yield from map(paragraph, filter(None, [adapted(found)]))
    else:
        yield from _protected_clients(found)
    if run.without_noise:
        yield paragraph(_price(run, run.without_noise))
    yield paragraph("Not covered by this guarantee, and not to be published under it:")
    yield f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in found['outside'])}</ul>\n"
    yield gallery({"Epsilon by round": epsilon_curve(run)})


def _price(run: Run, without_noise: Run) -> str:
    """Return what the noise costs, in the main metric."""
    metric = run.main_metric
    sentences = ["What the noise costs, by the same run without it."]
    for key in ("global", "mean", "client-mean"):
        before, after = (one.summary.by_group.get(key, {}).get(metric) for one in (without_noise, run))
        if before is not None and after is not None:
            values = f"without noise {shown(metric, before)}, with it {shown(metric, after)}"
            sentences.append(f"{heading(metric)}, {MODELS[key]}: {values}.")
    return " ".join(sentences)


def _protected(found: Mapping[str, Any]) -> str:
    who, whom = protected(found)
    return f"Protected {'are' if 'unit' in found else 'is'} {who}, from {whom}"


def _protected_clients(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield who is protected by client-level privacy, and assuming what."""
    noise = "Gaussian" if "mechanism" not in found else "discrete Gaussian"
    yield paragraph(
        f"{_protected(found)}. In every round "
        f"{who_was_asked(found)}; each update was scaled down to a bounded length, "
        f"and {noise} noise was added once to their sum."
    )
    yield paragraph(
        "Assumed: the server is trusted and keeps its key secret"
        + (", and who was asked in which round does not become known." if keeps_sample(found) else ".")
    )
