"""What a private run guarantees: who is protected from whom, by how much, and assuming what."""

import html
from collections.abc import Iterator, Mapping
from math import exp
from typing import Any

from ....privacy.terms import CLAIMS, NEIGHBOURS, SUMMED, protected
from ....records.metrics import heading, shown
from ...plotting.report_plots import epsilon_curve
from ...run_reader import Run
from ..html import gallery, key_values, paragraph
from .client_tables import MODELS

SAMPLINGS = {
    "poisson": "each client was asked with probability {probability:.4g}, drawn in secret",
    "fixed": "a sample of {clients-a-round:g} clients was asked, drawn in secret",
    "all": "all clients were asked",
    "cyclic": "one of {groups} fixed groups was asked, in turn",
}
"""What happens first in a round with differential privacy."""
SECRET = ("poisson", "fixed")
"""Samplings that protect only while it is not known who was asked."""
SECURE = {
    "mechanism": "noise, drawn exactly",
    "grid-steps": "steps of its grid in its deviation",
    "accountant": "epsilon is found by",
}
"""What is said of secure noise."""
OF_STEPS = (
    ": a client needs to trust nobody. In every step each {} was in the batch with the same probability, "
    "drawn in secret by its client. {} was scaled down to a bounded length, and Gaussian noise was added to "
    "their sum. Epsilon is the greatest of the clients', as if each had trained in every round."
)
AT_CLIENTS = {
    "example, at each client": OF_STEPS.format("example", "Its gradient"),
    "unit, at each client": OF_STEPS.format("unit", "The mean gradient of its rows"),
    "client, local": ": a client needs to trust nobody. It scaled its update down to a bounded length and "
    "added Gaussian noise to it before it sent anything. Epsilon is that of the client that was asked most "
    "often.",
    SUMMED: ": it saw masked numbers, and sums of {survivors} clients or more. Each client scaled its update "
    "down to a bounded length and added a share of the noise before it masked. The noise of "
    "{honest-survivors} of them is counted, as if the others had told theirs. With fewer clients a round had "
    "no result. Epsilon is that of the client that was asked most often.",
}
"""How they are protected, by notion, where clients add the noise."""
ADAPTED = (
    "The bound on an update's length followed the median of the lengths from round to round, by the number "
    "of updates within it. Clients added noise to that number too, in shares: {count-noise:g} is the "
    "deviation of what is counted. Epsilon is that of both."
)
"""What is said of a clip that adapts, where clients add the noise."""


def privacy(run: Run) -> Iterator[str]:
    """Yield who is protected from whom, by how much, and assuming what."""
    found = run.summary.privacy
    if not found:
        return
    epsilon, claim = found["epsilon"], found["claim"]
    factor, unknown = exp(min(epsilon, 700)), f"whether {NEIGHBOURS[found['adjacency']]}"
    yield key_values(
        {
            "epsilon" if claim not in CLAIMS else f"epsilon, {claim}": f"{epsilon:.3f}",
            "delta": f"{found['delta']:g}",
            f"epsilon planned for {found['planned-rounds']} rounds": f"{found['planned-epsilon']:.3f}",
            "noise, deviation over the clip": f"{found['noise']:g}",
            **({"rounds over which noise is correlated": str(found["bands"])} if "bands" in found else {}),
            **({SECURE[key]: str(found[key]) for key in SECURE if key in found}),
            "models published": str(found["published"]),
        }
    )
    if claim in CLAIMS:
        yield paragraph(CLAIMS[claim].format(**found))
    at_clients = AT_CLIENTS.get(found["notion"])
    sender = "clients sent" if at_clients else "server published"
    yield paragraph(
        f"From all models that the {sender} nobody can tell with certainty {unknown}. Whatever "
        "somebody thinks of the odds of it beforehand, the models change these by a factor of "
        f"e^{epsilon:.3f} = {factor:.3g} at most, but for a probability of {found['delta']:g}."
    )
    if at_clients:
        yield paragraph(f"{_protected(found)}{at_clients.format(**found)}")
        if "count-noise" in found:
            yield paragraph(ADAPTED.format(**found))
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
    sampling = found["sampling"]
    noise = "Gaussian" if "mechanism" not in found else "discrete Gaussian"
    yield paragraph(
        f"{_protected(found)}. In every round "
        f"{SAMPLINGS[sampling].format(**found)}; each update was scaled down to a bounded length, "
        f"and {noise} noise was added once to their sum."
    )
    yield paragraph(
        "Assumed: the server is trusted and keeps its key secret"
        + (", and who was asked in which round does not become known." if sampling in SECRET else ".")
    )
