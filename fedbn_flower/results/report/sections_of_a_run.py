"""The sections of a run's page, in their order, and sections of one's own."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fedbn_flower.clients.returned import described

from ... import annexes
from ...core.errors import UserError
from ...names import Registry
from ...names.user_code import as_user_error
from ..held_out import CASES
from ..run_reader import Run
from .html import section, warning
from .sections.client_tables import classes, new_clients, worst_clients
from .sections.closing import costs, how_to_reproduce, paper_of_run
from .sections.extensions import attack, extensions, what_the_server_saw
from .sections.privacy import privacy
from .sections.results import best_round, held_out, results, what_is_learnt
from .sections.warnings import failures, warnings

Contents = Callable[[Run], Iterable[str]]
"""What yields a section's HTML, below its heading; nothing where the run has nothing of it."""

HIGHLIGHTED: Mapping[str, Contents] = {"Warnings": warnings, "Failures": failures}
SECTIONS: Mapping[str, Contents | None] = {
    "Results": results,
    "Best round": best_round,
    "Segmentation by case": None,
    "Predictions": None,
    "Decisions by site": None,
    "Subgroups": None,
    "Recalibrated by site": None,
    "Worst clients": worst_clients,
    "Classes": classes,
    "New clients": new_clients,
    "What is learnt": what_is_learnt,
    f"{CASES.capitalize()} by site": held_out,
    "Privacy": privacy,
    "Attack": attack,
    "What the server saw": what_the_server_saw,
    "Extensions": extensions,
    "Costs": costs,
}
"""In their order; None has the place of one that an annex brings."""
CLOSING: Mapping[str, Contents] = {"Reproduce this run": how_to_reproduce, "For a paper": paper_of_run}
OWN: Registry[Contents] = Registry("section", {}, argument="the run")


def sections_of(run: Run, own: Sequence[str] = ()) -> Iterator[str]:
    """Yield all sections of a run's page; those of one's own stand before how to reproduce it.

    Raises
    ------
    UserError
        When one of one's own raises, or yields anything but text.
    """
    yield from (warning(heading, *contents(run)) for heading, contents in HIGHLIGHTED.items())
    of_all = {**SECTIONS, **annexes.brought("sections")}
    yield from (section(heading, *contents(run)) for heading, contents in of_all.items() if contents)
    yield from (section(_heading(name), *_own_contents(name, run)) for name in own)
    yield from (section(heading, *contents(run)) for heading, contents in CLOSING.items())


def own_sections(text: str) -> list[str]:
    """Return the names in a text with commas, each of a function that there is.

    Raises
    ------
    UserError
        When there is none, it is something else, or its file cannot be loaded.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        OWN.find(name)
    return names


def _heading(name: str) -> str:
    return name.rpartition(":")[2].replace("_", " ").capitalize()


def _own_contents(name: str, run: Run) -> list[str]:
    with as_user_error(OWN.key, name):
        given = OWN.find(name)(run)
        parts = list(given) if isinstance(given, Iterable) else [given]
    if wrong := [part for part in parts if not isinstance(part, str)]:
        raise UserError(f"{OWN.key}: {name!r} yields {described(wrong[0])}; expected HTML, as text")
    return parts
