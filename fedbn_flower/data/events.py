"""The event of two classes, and of each of several labels: decided here, once, for all that speaks of it.

Sensitivity, thresholds, calibration, decision curves and predictions are about the event. Training is not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from fedbn_flower.clients import Problem
from fedbn_flower.clients.problems.metrics.base import CLASSES, LABELS

from ..core.errors import not_allowed
from ..core.notes import Note
from ..core.text import listed, quoted, visible
from .column_text import split_words
from .dataset import Dataset, Event
from .labels import same_word

KEY, AUTO = "event", "auto"
ELSEWHERE = "the event"
"""Its name where the names of classes are not known, as at a server whose sites have the data."""
MAX_SHOWN = 10
RARE = 0.2
"""A share of events below which an accuracy says little."""
NO = frozenset(
    (  # noqa: SIM905
        "no n non nein nee nej nei não nao nie ne нет hayir hayır nem いいえ 否 无 "  # noqa: RUF001
        "false falsch faux falso falsa 0 0.0 - none keine kein aucun aucune ninguno ninguna nessuno nessuna "
        "negative neg negativ négatif négative negatif negativo negativa negatief 阴性 陰性 "
        "healthy well unaffected uninfected gesund sain saine sano sana saudável gezond zdrowy frisk "
        "survived survivor survival alive living überlebt überlebend lebt lebend lebendig vivant vivante vif "
        "survécu survivant vivo viva sobrevivió sopravvissuto sopravvissuta overleefd levend "
        "benign gutartig benigne bénin bénigne benin benigno benigna goedaardig "
        "normal normale normales unremarkable unauffällig unauffaellig o.b. normaal "
        "absent absence ausente assente abwesend fehlt afwezig control controls ctrl kontrolle contrôle "
        "témoin controllo"
    ).split()
)
"""Words that say no, as `same_word` has them."""
NEGATIONS = frozenset("no not non without never kein keine nicht ohne pas sans sin senza geen niet".split())  # noqa: SIM905
"""Words that make a no of what follows: ``no finding``, ``non-malignant``, ``ohne Befund``."""
WORDS = re.compile(r"[\W_]+")
TRUTH = {"0": 0, "1": 1, "false": 0, "true": 1}
"""How the event of a label may be given."""


def says_no(word: str, other: str = "") -> bool:
    """Return whether a class's name says that something is not so: ``nein``, ``benign``, ``no finding``."""
    whole = same_word(word)
    parts = [part for part in WORDS.split(whole) if part]
    if whole in NO or (whole == "f" and same_word(other) == "t"):
        return True
    return len(parts) > 1 and (parts[0] in NEGATIONS or parts[-1] in NO)


def event_of_two(names: Sequence[str], counts: Sequence[int] | None = None) -> int:
    """Return which of two classes is probably the event.

    It is the one that does not say no (see `says_no`), if the other does; otherwise the rarer one, and the
    second if both are as frequent, or it is not known how frequent they are.

    Parameters
    ----------
    names : Sequence[str]
        The names of both.
    counts : Sequence[int], optional
        How many examples each has. Sites that decide each for themselves do not go by theirs.
    """
    first, second = says_no(names[0], names[1]), says_no(names[1], names[0])
    if first != second:
        return int(first)
    return int(counts is None or counts[0] >= counts[1])


def events_of(dataset: Dataset, problem: Problem, given: str, everywhere: bool) -> tuple[Event, ...]:
    """Return the event of two classes, or of each label; nothing of other data.

    Parameters
    ----------
    dataset : Dataset
        The data; where they are elsewhere, nothing is known but what is ``given``.
    problem : Problem
        What is learnt from them.
    given : str
        The key: a class, or ``LABEL=0,LABEL=1``; ``auto`` to guess.
    everywhere : bool
        Whether these are all data: otherwise sites decide alike, by the names of classes and by no counts.

    Raises
    ------
    UserError
        When what is given is no class, or there is no event.
    """
    if problem.predicts == LABELS:
        return _of_labels(dataset.output_names, given)
    if problem.predicts != CLASSES or not dataset.has_classes or dataset.spec.outputs != 2:
        if given != AUTO:
            raise not_allowed(KEY, given, f"{AUTO!r}: an event is one of two classes; {_of(dataset)}")
        return ()
    names = [*(dataset.names_here or dataset.class_names)]
    if not names and not dataset.has_examples:
        return (Event(ELSEWHERE if given == AUTO else given, 1, given == AUTO),)
    names = names if len(names) == 2 else ["0", "1"]
    if given == AUTO:
        number = event_of_two(names, counts_of(dataset) if everywhere else None)
    else:
        number = _found(given, names)
    return (Event(names[number], number, given == AUTO),)


def _of(dataset: Dataset) -> str:
    if dataset.has_classes:
        return f"there are {dataset.spec.outputs} classes, {quoted(dataset.output_names, MAX_SHOWN)}"
    return f"these data are of {dataset.spec.predicts}"


def _found(given: str, names: Sequence[str]) -> int:
    """Return the number of the class of that name; case and blanks do not count if one class fits."""
    spelt = [same_word(name) for name in names]
    word = visible(given)
    if word in names:
        return names.index(word)
    if spelt.count(same_word(word)) != 1:
        raise not_allowed(KEY, given, f"one of the classes: {quoted(names, MAX_SHOWN)}")
    return spelt.index(same_word(word))


def _of_labels(labels: Sequence[str], given: str) -> tuple[Event, ...]:
    numbers: dict[str, int] = {}
    for word in [] if given == AUTO else split_words(given):
        label, _, value = word.rpartition("=")
        label = label if label in labels else label.strip()
        if label not in labels or label in numbers or same_word(value) not in TRUTH:
            form = f"{labels[0]}=1 or {labels[0]}=0 for each label that is meant, with commas between them"
            raise not_allowed(KEY, given, f"{form}; the labels are {quoted(labels, MAX_SHOWN)}")
        numbers[label] = TRUTH[same_word(value)]
    return tuple(
        Event(str(number := numbers.get(label, 1)), number, label not in numbers, label) for label in labels
    )


def counts_of(dataset: Dataset) -> list[int]:
    """Return how many examples are of each of two classes, in training and test."""
    y = np.concatenate([split.columns["y"] for split in dataset.splits])
    found: list[int] = np.bincount(y, minlength=2).tolist()
    return found


def rare_event(dataset: Dataset) -> str:
    """Return what an event is that is so rare that an accuracy says little of it; empty if it is not."""
    if not (dataset.has_classes and dataset.has_examples and len(dataset.events) == 1):
        return ""
    counts = counts_of(dataset)
    share = counts[dataset.events[0].number] / sum(counts)
    return f"an event in {100 * share:.1f} % of all examples" if 0 < share < RARE else ""


def notes_of(dataset: Dataset) -> list[Note]:
    """Return what is to be said of the events before a run, and whether they are guesses."""
    events = dataset.events
    if not events:
        return []
    key = KEY if any(event.guessed for event in events) else ""
    if events[0].label and not dataset.has_examples:
        return []
    if events[0].label:
        found = [f"{event.label} {event.name}" for event in events]
        return [Note("target", f"events: {listed(found, MAX_SHOWN)}", key)]
    (event,) = events
    if event.name == ELSEWHERE:
        return [Note("target", "the event of two classes: by their names at the sites, the same at all", key)]
    text = f"the event is {f'class {event.name}' if event.name.isdigit() else repr(event.name)}"
    if dataset.has_examples:
        counts = counts_of(dataset)
        text += f": {counts[event.number]:,} of {sum(counts):,} examples"
        text += ", as many as of the other class" if counts[0] == counts[1] else ""
    return [Note("target", text, key)]
