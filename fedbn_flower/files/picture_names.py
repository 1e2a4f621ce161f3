"""Say what pictures in folders are hardly meant as: people as classes, masks as pictures."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..core.notes import Note
from ..core.text import quoted
from .decoding import name_of_image

MASK_ENDING = re.compile(r"[_-](mask|segmentation|seg|label|lesion|gt)$", re.IGNORECASE)
"""What a mask's name may have after the name of its image."""
COPY_NUMBER = re.compile(r"[_-]\d{1,2}$")
"""What a second mask's name has at its end, as ``1_mask_1``."""
_PERSON = r"(case|image|img|pat|patient|pt|scan|series|slide|study|sub|subj|subject)[ _-]?\d+"
_SHORT = r"\d{3,}|(id|p|s)[ _-]?\d+"
PERSON = re.compile(_PERSON, re.IGNORECASE)
NUMBERED = re.compile(f"{_PERSON}|{_SHORT}", re.IGNORECASE)
"""Names of patients and the like, which are no classes."""
_PREFIX = r"([^/]*\d[^/]*)[_-][^_/-]+$"
PEOPLE = {
    _PREFIX: re.compile(_PREFIX),
    "([^/]+)/[^/]+$": re.compile(rf"(?:^|/)((?:{_PERSON})|(?:{_SHORT}))/[^/]+$", re.IGNORECASE),
}
"""By what a picture's path tells whose it is, as the user would write it: what comes before the last part of
its name, where a number is in it; its folder, where that is called as a person is."""
LEAST_PEOPLE, MOST_OF_ONE = 3, 50
"""So many folders with such names are rather people than classes; if a number or a letter with one is all of
the names, then only folders of so few pictures each."""


def of_people(pictures: Counter[str], below: Sequence[str] = ()) -> list[Note]:
    """Return a note if classes, given with their numbers of pictures, are called as people or cases are.

    ``below`` is the path of a picture in such a folder, for the advice.
    """
    named = sorted(filter(NUMBERED.fullmatch, pictures))
    if len(named) < LEAST_PEOPLE or 10 * len(named) < 9 * len(pictures):
        return []
    most = max(pictures.values())
    if most > MOST_OF_ONE and not all(map(PERSON.fullmatch, named)):
        return []
    such = f"such as {quoted(named[:2], 2)}, are read as classes"
    found = f"classes? {len(pictures)} folders of at most {most} pictures, {such}"
    row = f", with a row for each picture, such as {'/'.join(below)!r}" if below else ""
    advice = f"if each is a person or a case, name the pictures and their labels in a table instead{row}"
    return [Note("target", f"{found}; {advice}")]


def of_patients(names: Sequence[str]) -> list[Note]:
    """Return a note if pictures, given by their paths, are called as several of each of many people.

    As ``p001_1.png`` and ``p001_2.png``, or as pictures in folders called ``patient_1``.
    """
    for pattern, found in PEOPLE.items():
        people = Counter(match[1] for name in names if (match := found.search(name)))
        several = [person for person, count in people.items() if 1 < count <= MOST_OF_ONE]
        pictures = sum(people[person] for person in several)
        if len(several) >= LEAST_PEOPLE and 2 * pictures >= len(names):
            such = [name for name in names if (match := found.search(name)) and match[1] == several[0]][:2]
            said = f"leaks? {pictures} pictures seem to be of {len(several)} people ({quoted(such, 2)})"
            advice = f"group-column 'name={pattern}' keeps those of one on one side of every split"
            return [Note("examples", f"{said}; {advice}")]
    return []


def of_masks(pictures: Iterable[Path]) -> list[Note]:
    """Return a note if pictures are called as masks of others in the same folder."""
    by_name = {(path.parent, name_of_image(path)): path for path in pictures}
    masks = []
    for (folder, stem), path in by_name.items():
        for name in (stem, COPY_NUMBER.sub("", stem)):
            image = MASK_ENDING.sub("", name)
            if image != name and (folder, image) in by_name:
                masks.append((path, by_name[folder, image]))
                break
    if not masks:
        return []
    mask, image = (path.name for path in min(masks))
    are = "is called as a mask" if len(masks) == 1 else "are called as masks"
    found = f"masks? {len(masks)} of {len(by_name)} pictures {are} of another, such as {mask!r} of {image!r}"
    advice = "move them out, or into a folder 'masks' beside one 'images' to learn them"
    return [Note("inputs", f"{found}, and learnt from as the others; {advice}")]
