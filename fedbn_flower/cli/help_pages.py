"""``--help``: what one runs first, the commands, and the topics; ``--help TOPIC`` shows a topic's keys."""

import argparse
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.errors import unknown_name

Section = tuple[str | None, Sequence[argparse.Action]]

ALL, OPTIONS = "all", "options"
WIDTH = 100
"""Characters of a line of the topics."""
FIRST = """\
what to run first:
  fedbn-sim                                                  the default job: four sites, four scanners
  fedbn-sim --strategy fedavg --client shared,silobn,fedbn --seed 0,1,2    compare, over three seeds
  fedbn-sim inspect FOLDER                                   look at your data
  fedbn-sim --dataset FOLDER --partition natural:site --num-clients 3
  fedbn-sim --list                                           every name, and what it is for
  fedbn-sim --list personal-models                           those for a purpose, or of a kind

commands:
  inspect DATA       a page on the data of all sites     report DIR      rewrite the report of a run
  compare DIR DIR    runs side by side                   export DIR      the model, as a file
  ledger DIR         what privacy a site has spent       release DIR     what may be published
  app PATH           run any app that flwr run takes
  COMMAND --help shows its options
"""
END = f"--help TOPIC shows its keys, --help KEY one of them, --help {ALL} everything"


class Help(argparse.Action):
    """Print the page that is asked for, and exit."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        print(page_of(parser, str(values or "")), end="")
        parser.exit()


def page_of(parser: argparse.ArgumentParser, topic: str) -> str:
    """Return the page on a topic, a key or everything; by default on where to begin.

    Raises
    ------
    UserError
        When there is no such topic or key.
    """
    if topic == ALL:
        return parser.format_help()
    groups = {slug(group.title): group for group in parser._action_groups if group._group_actions}
    if not topic:
        return _begin(parser, groups)
    words = [name for name in groups if topic in (name, *name.split("-"))]
    found: list[Section] = [(groups[name].title, groups[name]._group_actions) for name in words]
    if not found:
        actions = [action for action in parser._actions if f"--{topic.lstrip('-')}" in action.option_strings]
        found = [("", actions)] if actions else []
    if not found:
        raise unknown_name("help", topic, [*groups, ALL], "a key")
    return _sections(parser, found)


def slug(title: str | None) -> str:
    """Return a section's title as one word: ``what-runs``."""
    return "-".join((title or "").lower().replace(",", "").split())


def _begin(parser: argparse.ArgumentParser, groups: Mapping[str, argparse._ArgumentGroup]) -> str:
    """Return where to begin, and the topics with their keys; those of the named algorithms come first."""
    topics = [name for name in groups if name != OPTIONS and groups[name]._group_actions]
    width = max(map(len, topics)) + 4
    lines = [
        textwrap.shorten(", ".join(action.dest for action in groups[name]._group_actions), WIDTH - width)
        for name in topics
    ]
    shown = "".join(f"{f'  {name}':<{width}}{line}\n" for name, line in zip(topics, lines, strict=True))
    return f"{parser.format_usage()}\n{FIRST}\ntopics:\n{shown}\n{END}\n"


def _sections(parser: argparse.ArgumentParser, sections: Iterable[Section]) -> str:
    """Return sections as ``--help`` shows them."""
    formatter = parser._get_formatter()
    for title, actions in sections:
        formatter.start_section(title or None)
        formatter.add_arguments(actions)
        formatter.end_section()
    return formatter.format_help()
