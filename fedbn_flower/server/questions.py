"""Query sites with data of their own before the first round, for moments, counts, sizes and class names."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray
from pydantic import ValidationError

from fedbn_flower.data.statistics import class_counts
from fedbn_flower.strategies import Participation, PseudoGradientStrategy, ReplyRefused
from fedbn_flower.strategies.aggregation.rule_state import CLASS_COUNTS
from fedbn_flower.strategies.messages.gate import answers, numbers_of, record_of, text_of
from fedbn_flower.strategies.messages.nodes import Everybody
from fedbn_flower.strategies.messages.validation import MAX_WEIGHT

from ..core.errors import RunFailed, not_allowed
from ..core.ground.columns import TRAIN
from ..core.ground.wire import (
    COUNTS,
    DIGESTS_OF_NAMES,
    FEATURE_MEAN,
    FEATURE_STD,
    MOMENTS,
    NAMES,
    QUERY_COUNTS,
    QUERY_MOMENTS,
    QUERY_NAMES,
    QUERY_SIZES,
    SIZES,
)
from ..core.text import listed
from ..data.scales import SiteMoments, median_scale, notable, pooled_scale, received
from ..job.inputs import RunInputs
from ..job.site_facts import CLASSES, TOKENS, Names, SiteCounts, digest_of, shown_names
from ..job.what_is_learnt import MAX_SHOWN

LOGGER = logging.getLogger("flwr.fedbn")
SHOWN = 8
"""How many values of a mean the log shows."""
MOST_ARRAYS = 8
"""At most so many arrays of a site's moments."""

T = TypeVar("T")


def answers_of_sites(
    query: str,
    inputs: RunInputs,
    strategy: PseudoGradientStrategy,
    grid: Grid,
    read: Callable[[RecordDict], T],
    all_of_them: bool = False,
    who: Participation | None = None,
) -> dict[int, T]:
    """Send a query to the nodes; return each answer as parsed by ``read``, by partition or node id.

    Connected nodes are asked, by default those that take part in the rounds. One whose answer cannot be used,
    or does not come within ``round-timeout`` seconds, is left out with a warning that names it. So a faulty
    site does not end the run, and may still train, with the statistics of the others.

    Raises
    ------
    RunFailed
        If no answer can be used; with ``all_of_them``, if any cannot.
    """
    nodes = strategy.node_directory
    members, _ = nodes.taking_part(who or strategy.node_participation, 1)
    messages = [Message(RecordDict(), node, query) for node in members]
    replies = grid.send_and_receive(messages, timeout=inputs.config.round_timeout)
    found: dict[int, T] = {}
    lines: list[str] = []
    silent = set(members)
    for node, answer in answers(messages, replies, read):
        silent.discard(node)
        if isinstance(answer, ReplyRefused):
            lines.append(f"{query}: {nodes.name(node)}: {answer}")
        else:
            found[nodes.partition(node)] = answer
    if silent:
        missing = ", ".join(nodes.name(node) for node in sorted(silent, key=nodes.rank))
        lines.append(f"{query}: no answer within {inputs.config.round_timeout:g} s from {missing}")
    if not found or (lines and all_of_them):
        raise RunFailed("; ".join(lines[:SHOWN]) or f"{query}: no site takes part")
    for line in lines:
        LOGGER.warning("%s: left out", line)
    return dict(sorted(found.items()))


def sites_scale(inputs: RunInputs, strategy: PseudoGradientStrategy, grid: Grid) -> dict[str, list[float]]:
    """Return mean and standard deviation over the training examples of all sites, in the form sent to sites.

    They are per channel of images, per column of tables, and per index of the first axis of other numbers:
    over all values, or with ``normalize`` ``median`` those of the median site. A warning names outlying
    sites.

    Empty without ``normalize``, and if the server has the data.

    Raises
    ------
    UserError
        When the data are text.
    RunFailed
        If no site answers with moments of at least one example.
    """
    config, spec = inputs.config, inputs.dataset.spec
    if not config.normalize or inputs.dataset.has_examples:
        return {}
    if spec.predicts == "characters":
        raise not_allowed("normalize", config.normalize, f"false, since the data are {spec}")
    most = (strategy._max_weight_ or MAX_WEIGHT) * math.prod(spec.shape[1:])

    def read(content: RecordDict) -> SiteMoments:
        try:
            return received(numbers_of(content, MOMENTS, MOST_ARRAYS, spec.shape[0]), spec.shape[0], most)
        except ValueError as error:
            raise ReplyRefused(str(error)) from None

    sites = _of_one_kind(answers_of_sites(QUERY_MOMENTS, inputs, strategy, grid, read))
    by_median = config.normalize == "median"
    names = {f"site {site}": moments for site, moments in sites.items()}
    for line in () if by_median else notable(names):
        LOGGER.warning("normalize: %s; normalize 'median' goes by the median site", line)
    scale = (median_scale if by_median else pooled_scale)(list(sites.values()))
    means, stds = (", ".join(f"{value:.4g}" for value in values[:SHOWN]) for values in scale)
    more = ", ..." if len(scale.mean) > SHOWN else ""
    over = "medians" if by_median else "over the training examples"
    told = (f"{means}{more}", f"{stds}{more}", over, len(sites))
    LOGGER.info("normalize: mean %s, deviation %s, %s of %d sites", *told)
    return {FEATURE_MEAN: list(scale.mean), FEATURE_STD: list(scale.std)}


def _of_one_kind(sites: Mapping[int, SiteMoments]) -> dict[int, SiteMoments]:
    """Return the sites whose moments are of the majority's kind, images or numbers."""
    ((kind, _),) = Counter(map(type, sites.values())).most_common(1)
    for site, moments in sites.items():
        if type(moments) is not kind:
            LOGGER.warning(
                "%s: site %s: data of another kind than the others': left out", QUERY_MOMENTS, site
            )
    return {site: moments for site, moments in sites.items() if type(moments) is kind}


LONGEST = 2**24
"""The longest counts of a site that are read, in characters."""


def sites_counts(inputs: RunInputs, strategy: PseudoGradientStrategy, grid: Grid) -> dict[int, SiteCounts]:
    """Return the counts of every connected site, by partition or node id.

    A site is left out with a warning if its answer cannot be used or its features differ from the majority's.

    Raises
    ------
    RunFailed
        When no site's answer can be used.
    """
    most = strategy._max_weight_ or MAX_WEIGHT

    def read(content: RecordDict) -> SiteCounts:
        try:
            counts = SiteCounts.model_validate_json(text_of(content, COUNTS, COUNTS, LONGEST))
            counts.check(inputs, most)
        except ValidationError as error:
            first = error.errors()[0]
            raise ReplyRefused(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        except ValueError as error:
            raise ReplyRefused(str(error)) from None
        return counts

    found = answers_of_sites(QUERY_COUNTS, inputs, strategy, grid, read)
    ((described, _),) = Counter(map(_described, found.values())).most_common(1)
    for site, counts in found.items():
        if _described(counts) != described:
            LOGGER.warning("%s: site %s: it has other features than the others: left out", QUERY_COUNTS, site)
    return {site: counts for site, counts in found.items() if _described(counts) == described}


def _described(counts: SiteCounts) -> tuple[tuple[object, ...], ...]:
    return tuple((f.name, tuple(f.edges), f.values) for f in counts.features)


def sites_sizes(inputs: RunInputs, strategy: PseudoGradientStrategy, grid: Grid) -> dict[int, int]:
    """Return the number of examples or units that every connected site reports, by partition or node id.

    Raises
    ------
    RunFailed
        If a site does not answer with a positive integer: the run's epsilon would not hold for it.
    """

    def read(content: RecordDict) -> int:
        count = record_of(content, SIZES, ConfigRecord).get(TRAIN)
        if type(count) is not int or not 0 < count <= MAX_WEIGHT:
            what = "units" if inputs.config.dp_unit else "training examples"
            raise ReplyRefused(f"{count!r} {what}, not a whole number in [1, {MAX_WEIGHT}]")
        return count

    return answers_of_sites(QUERY_SIZES, inputs, strategy, grid, read, all_of_them=True)


def learn_class_counts(inputs: RunInputs, strategy: PseudoGradientStrategy, grid: Grid) -> None:
    """Give a rule that uses class counts those of all clients, once; afterwards they are part of its state.

    The server counts if it has the data; otherwise sites are asked. One whose counts cannot be used gets
    zeros, with a warning.

    Raises
    ------
    RunFailed
        If no site's counts can be used.
    """
    if type(strategy).of_classes and CLASS_COUNTS not in strategy.rule_state.vectors:
        strategy.rule_state.vectors[CLASS_COUNTS] = _counts(inputs, strategy, grid)


def _counts(inputs: RunInputs, strategy: PseudoGradientStrategy, grid: Grid) -> NDArray[np.float64]:
    if inputs.dataset.has_examples:
        return class_counts(inputs.dataset, inputs.partitions.train).astype(np.float64)
    found = sites_counts(inputs, strategy, grid)
    counts = np.zeros((inputs.config.num_clients, inputs.dataset.spec.outputs))
    for partition in found.keys() & range(len(counts)):
        counts[partition] = found[partition].classes
    if missing := [str(partition) for partition in range(len(counts)) if partition not in found]:
        LOGGER.warning(
            "strategy %r: no counts of classes from partition %s: what it answers weighs nothing",
            *(inputs.config.strategy, listed(missing, MAX_SHOWN)),
        )
    return counts


LONGEST_NAMES = 2**20
"""The longest names of a site that are read, in characters."""


def check_names(inputs: RunInputs, strategy: PseudoGradientStrategy, grid: Grid) -> dict[str, str]:
    """Refuse sites whose class numbers mean other names, as the server knows classes by number only.

    All connected sites are asked, including those held out of the rounds. Return the digests that go into
    messages, so that a site that connects later can check its own (`check_names_here`). Empty without names.

    Raises
    ------
    RunFailed
        If two sites differ, with both lists; or if no site's answer can be used.
    """
    if inputs.dataset.has_examples:
        return {}
    found = answers_of_sites(QUERY_NAMES, inputs, strategy, grid, _received, who=Everybody())
    digests = {}
    for what in (CLASSES, TOKENS):
        named = {site: names[what] for site, names in found.items() if what in names}
        for site, names in named.items():
            first = next(iter(named))
            if digest_of({what: names}) != digest_of({what: named[first]}):
                raise RunFailed(_differ(what, (first, site), (named[first], names)))
        if unnamed := [str(site) for site in found if named and site not in named]:
            have = f"the {what} have no names at site {', '.join(unnamed)}, and names at others"
            LOGGER.warning("%s, %s: nobody knows whether they are the same", have, shown_names(named[first]))
        if named:
            digests[what] = digest_of({what: next(iter(named.values()))})
    return {DIGESTS_OF_NAMES: json.dumps(digests)} if digests else {}


def _differ(what: str, sites: tuple[int, int], names: tuple[Sequence[str], Sequence[str]]) -> str:
    lists = " and ".join(f"at site {s} {shown_names(n)}" for s, n in zip(sites, names, strict=True))
    told = "expected the same names in the same order, since each site numbers its own"
    return f"data-path: the {what} are {lists}; {told}"


def _received(content: RecordDict) -> Names:
    try:
        names = json.loads(text_of(content, NAMES, NAMES, LONGEST_NAMES))
    except (ValueError, RecursionError) as error:
        raise ReplyRefused(f"{NAMES}: no JSON ({type(error).__name__})") from None
    form = isinstance(names, dict) and all(isinstance(several, list) for several in names.values())
    if not (form and all(isinstance(name, str) for several in names.values() for name in several)):
        raise ReplyRefused(f"{NAMES}: no lists of names")
    return {str(what): several for what, several in names.items()}
