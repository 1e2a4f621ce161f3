"""The command line: each configuration key and each setting is a flag; lists make a sweep.

``--help`` shows what one runs first, the commands, and the topics; ``--help TOPIC`` shows a topic's keys.
"""

import argparse
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .. import annexes
from ..config.given import check_given
from ..config.gone import GONE, refuse_gone
from ..config.help import Flag, common_flags, flags_of, inherited_flags
from ..config.keys import ALIASES, flag_of
from ..config.making import run_config
from ..config.named_algorithms import REGISTRIES, Named, named, with_full_paths
from ..config.run_config import RunConfig
from ..config.trust import CLUSTER
from ..core.errors import UserError, not_allowed, unknown_name
from ..core.ground.columns import HeldOut
from ..core.stored import RUN, SEARCH, SWEEP, checked_kind
from ..core.text import hint
from ..names import name_now, short
from ..results.resume import resumed
from .argument_parser import Parser

Section = tuple[str | None, Sequence[argparse.Action]]
Search = Callable[[], int]
"""What runs a search, and returns the exit status."""

ALL, OPTIONS = "all", "options"
WIDTH = 100
"""Characters of a line of the topics."""
FIRST = """\
what to run first:
  fedbn-sim                                                  the default job: four sites, four scanners
  fedbn-sim --strategy fedavg --client shared,silobn,fedbn --seed 0,1,2,3,4  compare, over five seeds
  fedbn-sim inspect FOLDER                                   look at your data
  fedbn-sim --dataset FOLDER --partition natural:site --num-clients 3
  fedbn-sim --list                                           every name, and what it is for
  fedbn-sim --list personal-models                           those for a purpose, or of a kind

commands:
  inspect DATA       a page on the data of all sites     report DIR      rewrite the report of a run
  compare DIR DIR    runs side by side                   export DIR      the model, as a file
  ledger DIR         what privacy a site has spent       release DIR     what may be published
  app PATH           run any app that flwr run takes     runs DIR        a table of all runs
  watch DIR          a page that follows them            new NAME        write the app of a study
  consortium VERB    keys, kits and studies of sites     doctor FLAGS    what a run might fail of
  audit DIR          what has left a site
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


GRID_KEYS = ("strategy", "client", "objective", "reference", "seed")
"""Keys whose values are split at commas."""
ALGORITHM_KEYS = ("strategy", "client", "objective", "loss", "model", "extension")
COMMANDS = ("list", "sweep", "experiment", "search", "trials", "dry_run", "trust_code", "version")
"""Flags that are not keys of a run."""
FORM, TRIALS = "KEY=LOW..HIGH or KEY=A,B,...", 20
"""What ``--search`` takes, and how many trials there are by default."""


class _Gone(argparse.Action):
    """Refuse the flag of a former key."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        refuse_gone(self.dest, [values])


class _Once(argparse.Action):
    """Store a value; refuse a second one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            raise UserError(f"{option_string}: given twice")
        setattr(namespace, self.dest, values)


@dataclass(frozen=True)
class Job:
    """A run or a sweep, as given on the command line."""

    configs: list[RunConfig]
    """One run, or the runs of a sweep."""
    sweep: Any = None
    """The experiment of a sweep, which an annex has made."""
    dry_run: bool = False


def parse(arguments: Sequence[str]) -> list[RunConfig]:
    """Return the configurations of a command line that is not a search."""
    job = parse_command_line(arguments)
    assert isinstance(job, Job)
    return job.configs


def parse_command_line(arguments: Sequence[str]) -> Job | Search:
    """Parse and check the whole command line; return a job or a search.

    Raises
    ------
    UserError
        For any flag or value that is not allowed.
    """
    names = Parser(add_help=False, allow_abbrev=False)
    _add(names, [Flag(key) for key in (*GRID_KEYS, "loss", "model", "extension", CLUSTER, "resume")])
    _add_commands(names)
    chosen, _ = names.parse_known_args(arguments)
    values = {key: value for key, value in vars(chosen).items() if key not in COMMANDS and value is not None}
    parser = _full_parser([] if chosen.resume else _algorithms(chosen, values))
    known, unknown = parser.parse_known_args(arguments)
    if unknown:
        flag = unknown[0].split("=")[0]
        near = hint(flag.lstrip("-"), map(flag_of, vars(known)), "--")
        raise UserError(f"{unknown[0]}: unknown flag{near}; see --help")
    values = {key: value for key, value in vars(known).items() if key not in COMMANDS and value is not None}
    if "resume" in values:
        return _resumed(known, values)
    experiment = _experiment(known, values)
    if known.search or (experiment and experiment.search):
        return _search(known, values, experiment)
    if known.trials:
        raise UserError(f"trials: {known.trials!r} is not used without search")
    if not experiment:
        return Job([run_config(_of_one_run(values))], None, known.dry_run)
    return Job(experiment.configurations(), experiment if experiment.is_sweep else None, known.dry_run)


def _resumed(known: argparse.Namespace, values: Mapping[str, str]) -> Job | Search:
    """Return the run, sweep or search that ``resume`` names."""
    for flag in ("experiment", "sweep", "search"):
        if given := getattr(known, flag):
            value = given if isinstance(given, str) else given[0]
            raise not_allowed(flag, value, "none with resume, which continues what is in the folder")
    folder = Path(values["resume"])
    kind = checked_kind(folder, "resume", RUN, SWEEP, SEARCH)
    if kind == SEARCH:
        _check_not_dry(known)
        search = annexes.load("searches", "resume")(folder, values, known.trials)
        return partial(annexes.load("searches", "run"), search)
    if known.trials:
        raise UserError(f"trials: {known.trials!r} is not used without search")
    if kind == RUN:
        return Job([resumed(values)], None, known.dry_run)
    experiment = annexes.load("sweeps", "resume")(values)
    return Job(experiment.configurations(), experiment, known.dry_run)


def _search(known: argparse.Namespace, values: Mapping[str, str], experiment: Any) -> Search:
    """Return the search of the flags and the file, if any."""
    texts, trials = known.search or [], known.trials
    if experiment:
        given, texts = experiment.of_search(texts)
        trials = trials or experiment.trials
    else:
        given = _of_one_run(values)
    _check_not_dry(known)
    search = annexes.load("searches", "search")(given, texts, trials)
    return partial(annexes.load("searches", "run"), search)


def _check_not_dry(known: argparse.Namespace) -> None:
    if known.dry_run:
        raise UserError("dry-run: not possible for a search, whose later trials depend on the earlier ones")


def _experiment(chosen: argparse.Namespace, values: Mapping[str, str]) -> Any:
    """Return the experiment of the flags and the file; None if the flags say one run."""
    asking = [flag for flag in ("experiment", "sweep") if getattr(chosen, flag)]
    asking += [key for key in GRID_KEYS if "," in values.get(key, "")]
    if every := every_run_of({key: text.strip() for key, text in values.items()}):
        asking.append(every.key)
    if not asking:
        return None
    experiment_of = annexes.load("sweeps", "experiment", asking[0])
    return experiment_of(values, chosen.sweep or [], chosen.experiment, chosen.trust_code)


def every_run_of(given: Mapping[str, Any]) -> HeldOut | None:
    """Return of what all runs are asked for: that of each fold, or with each site left out."""
    folds = str(given.get("folds", "0"))
    if folds.isdecimal() and int(folds) > 1 and given.get(HeldOut.FOLDS.one, "0") == "0":
        return HeldOut.FOLDS
    if given.get("leave-one-site-out") == "true" and given.get(HeldOut.SITE.one, "-1") == "-1":
        return HeldOut.SITE
    return None


def _algorithms(chosen: argparse.Namespace, values: Mapping[str, str]) -> Iterable[Named]:
    """Return every algorithm that is named."""
    experiment = _experiment(chosen, values)
    found: Iterable[Named] = experiment.algorithms() if experiment else named(dict(_texts(values)))
    return found


def _of_one_run(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of one run by key, with full paths of files."""
    return {key: with_full_paths(key, text) for key, text in _texts(values)}


def _texts(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, text in values.items():
        check_given(key, text)
        yield key, name_now(key, text.strip())


# ---- flags and their help ---------------------------------------------------------------------------


def _full_parser(algorithms: Iterable[Named]) -> Parser:
    """Return a parser with the flags of the named algorithms, the common flags, then all other settings."""
    parser = Parser(
        usage="%(prog)s [--KEY VALUE ...]",
        description="Simulate federated learning: any server rule with any BatchNorm policy.",
        epilog=f"A comma in --{', --'.join(GRID_KEYS)} also makes a sweep, with one table.",
        allow_abbrev=False,
        add_help=False,
    )
    _add_commands(parser)
    parser.add_argument(
        "-h",
        "--help",
        action=Help,
        nargs="?",
        metavar="TOPIC",
        help="show where to begin, or the keys of a topic",
    )
    seen: set[str] = set()
    algorithms = sorted(algorithms, key=lambda a: ALGORITHM_KEYS.index(a.kind))
    groups = {f"{a.kind} {short(a.name)}": flags_of(a.cls) for a in algorithms}
    for title, flags in (groups | inherited_flags() | common_flags()).items():
        _add(parser.add_argument_group(title), [flag for flag in flags if flag.key not in seen])
        seen |= {flag.key for flag in flags}
    others = parser.add_argument_group("Settings of other algorithms")
    for registry in REGISTRIES:
        for name, cls in registry.names.items():
            flags = [flag for flag in flags_of(cls) if flag.key not in seen]
            _add(others, flags, f"{registry.key} {name}: ")
            seen |= {flag.key for flag in flags}
    return parser


def _add_commands(parser: argparse.ArgumentParser) -> None:
    """Add the flags that are not keys of a run; ``dest`` of each is in `COMMANDS`, or the key is gone."""
    for key in GONE:
        parser.add_argument(f"--{key}", dest=key, action=_Gone, help=argparse.SUPPRESS)
    parser.add_argument(
        "--list",
        nargs="*",
        metavar="WORD",
        help="show where to begin and every name, and exit; with what they are for those of a kind or a "
        "purpose: --list strategy, --list label-skew, --list all; formulas with --list --long",
    )
    parser.add_argument("--version", action="store_true", help="show the versions and exit")
    parser.add_argument(
        "--sweep",
        action="append",
        metavar="KEY=V1,V2",
        help="run every value of a key or setting, in all combinations; repeat it for another key; separate "
        "values by semicolons if they contain commas",
    )
    parser.add_argument(
        "--experiment",
        action=_Once,
        metavar="FILE",
        help="keys of a TOML or YAML file, or a run's config.json; lists make a sweep, flags override it",
    )
    parser.add_argument(
        "--search",
        action="append",
        metavar="KEY=VALUES",
        help=f"search a number or name on the validation data; may be repeated; {FORM}",
    )
    parser.add_argument(
        "--trials",
        action=_Once,
        metavar="VALUE",
        help=f"number of trials of a search [{TRIALS}]; a whole number >= 1",
    )
    parser.add_argument(
        "--trust-code",
        action=_Once,
        metavar="VALUE",
        help="run code (FILE.py:NAME) that a JSON file given to --experiment names [false]; true or false",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would run and an estimate of the time, and exit"
    )


def _add(parser: argparse._ActionsContainer, flags: Iterable[Flag], prefix: str = "") -> None:
    for flag in flags:
        parser.add_argument(
            f"--{flag.key}",
            *(f"--{alias}" for alias, key in ALIASES.items() if key == flag.key),
            dest=flag.key,
            action=_Once,
            metavar="VALUE",
            help=f"{prefix}{flag.meaning} [{flag.default}]; {flag.allowed}".replace("%", "%%"),
        )
