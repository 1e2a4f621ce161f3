"""Whole runs of three simulated clients, of which the first lies in round 1 about what one rule reads."""

from textwrap import fill

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message

from fedbn_flower.config.making import run_config
from fedbn_flower.core.ground.wire import CHOSEN, CONFIG, SERVER_ROUND
from fedbn_flower.records.events import Observer
from fedbn_flower.runtime.grid import InlineGrid, partition_of
from fedbn_flower.server.federation import Federation
from strategies import STRATEGIES

from .hostile import WIDTH

REFUSED, BELIEVED = "refused", "believed"
CLIENTS = {"fedpac": "fedpac"}
SMALL = {"dataset": "digits", "partition": "iid", "num-clients": 3, "rounds": 2, "local-epochs": 1}
SMALL |= {"batch-size": 128, "fraction-evaluate": 0.0}
CHOICE = {"selection": "power-of-choice:3", "fraction-train": 0.6, "fraction-evaluate": 1.0}
FURTHER = {"power-of-choice": CHOICE}


class Lying(InlineGrid):
    """The first client's answers of round 1 are lies, or are lost where they would be."""

    lie, lost, lied, exchanges = staticmethod(lambda content: None), False, 0, 0

    def work(self, messages, timeout):
        self.exchanges += 1
        assert self.exchanges < 100, "questions without end"
        asked = {message.metadata.message_id: message for message in messages}
        for reply in super().work(messages, timeout):
            message = asked[reply.metadata.reply_to_message_id]
            is_liar = partition_of(message) == 0 and message.content[CONFIG][SERVER_ROUND] == 1
            found = self.lie(dict(reply.content)) if is_liar and reply.has_content() else None
            if found is None:
                yield reply
                continue
            self.lied += 1
            if self.lost:
                yield Message(Error(1, "lost"), reply_to=message)
            else:
                reply.content.clear()
                reply.content.update(found)
                yield reply


class Failures(Observer):
    def __init__(self):
        self.of_rounds = []

    def on_round(self, result):
        self.of_rounds.append({**result.train.failures, **result.evaluate.failures})
        self.arrays = result.arrays


def outcome(name, cache_dir, lie=lambda content: None, lost=False):
    """The failures by round, all that the server has in the end, and whether somebody lied."""
    requires = STRATEGIES.get(name, STRATEGIES["fedavg"]).requires
    needs = {key: min(requires[key]) for key in ("objective", "client-optimizer") if key in requires}
    rule = {"strategy": name if name in STRATEGIES else "fedavg", "client": CLIENTS.get(name, "fedavg")}
    values = {**SMALL, **rule, **needs, **FURTHER.get(name, {}), "cache-dir": str(cache_dir)}
    federation, found = Federation(run_config(values)), Failures()
    federation.strategy._takes_sums_ = False
    grid = Lying(3, federation.config.to_user_config())
    grid.lie, grid.lost = lie, lost
    federation.run(grid, [found])
    state = federation.strategy.rule_state
    has = {f"vector {n}": vector for n, vector in state.vectors.items()}
    models = {"": found.arrays, **state.models}
    has |= {f"{m} {n}": array.numpy() for m, model in models.items() for n, array in model.items()}
    return found.of_rounds, has, grid.lied


def by_rule(name, cache_dir):
    """Whether a lie about what this rule reads costs the liar its answer, and nobody else anything."""

    def happens(lie, option=""):
        failures, has, lied = outcome(name, cache_dir, lie)
        assert lied
        assert all(np.isfinite(array).all() for array in has.values())
        if 0 not in failures[0]:
            return BELIEVED
        assert failures[0].keys() == {0}
        assert failures[1] == {}
        _, without, _ = outcome(name, cache_dir, lie, lost=True)
        assert has.keys() == without.keys()
        for entry, array in without.items():
            np.testing.assert_array_equal(has[entry], array, entry)
        return REFUSED

    return happens


def entry(record, change, *names):
    """A lie about entries of a record: those with these ends of names, else all."""

    def lie(content):
        found = dict(content.get(record, {}))
        lied = [name for name in found if name.endswith(names or name)]
        for name in lied:
            value = found[name]
            is_array = isinstance(value, Array)
            found[name] = Array(np.asarray(change(value.numpy()))) if is_array else change(value)
        return {**content, record: type(content[record])(found)} if lied else None

    return lie


def filled(value):
    return lambda array: np.full_like(array, value)


def number(name, value):
    return entry("metrics", lambda _: value, name)


def without(record):
    return lambda content: {n: r for n, r in content.items() if n != record} if record in content else None


def chosen(name):
    return lambda content: {**content, CHOSEN: ConfigRecord({"model": name})} if CHOSEN in content else None


def another_call(content):
    """A question of one's own making, each time another."""
    if "batch-statistics" not in content:
        return None
    record = content["batch-statistics"]
    made = {f"{np.random.default_rng().integers(50)}:2.running_mean": Array(np.zeros(128, np.float32))}
    return {**content, "batch-statistics": ArrayRecord({"shares": record["shares"], **made})}


BY_RULE = [
    ("a `running_var` below 0", "fedavg", entry("arrays", filled(-1), "running_var"), REFUSED),
    ("a counter of batches below 0", "fedavg", entry("arrays", filled(-1), "num_batches_tracked"), REFUSED),
    ("a `running_var` below 0", "fedap", entry("arrays", filled(-1), "running_var"), REFUSED),
    ("a `running_mean` that is not finite", "fedap", entry("arrays", filled(np.nan), "_mean"), REFUSED),
    ("a `running_var` of 1e15", "fedap", entry("arrays", filled(1e15), "running_var"), BELIEVED),
    ("features of another shape", "fedpac", entry("features", lambda a: a[:, :1], "class-means"), REFUSED),
    ("a variance of features below 0", "fedpac", entry("features", filled(-1), "spread"), REFUSED),
    ("features of classes with shares of 0", "fedpac", entry("prototypes", filled(0)), REFUSED),
    ("shares of classes that sum to 10", "fedproto", entry("prototypes", filled(1), "shares"), REFUSED),
    ("shares of classes below 0", "fedproto", entry("prototypes", filled(-0.1), "shares"), REFUSED),
    ("a score of 2", "fedsat", entry("struggle", filled(2), "scores"), REFUSED),
    ("a gradient that is not finite", "mime", entry("gradient", filled(np.inf)), REFUSED),
    ("no gradient", "mime", without("gradient"), REFUSED),
    ("a gradient of 1000", "mime", entry("gradient", filled(1000)), BELIEVED),
    ("no gradient", "mimelite", without("gradient"), REFUSED),
    ("a question that nobody else has", "fedtan", another_call, REFUSED),
    ("a batch of less than no examples", "fedtan", entry("batch-statistics", filled(-1), "shares"), REFUSED),
    ("a variance below 0", "fedtan", entry("batch-statistics", filled(-1), "running_var"), REFUSED),
    ("a mean of 1e5", "fedtan", entry("batch-statistics", filled(1e5), "running_mean"), BELIEVED),
    ("a model that there is not", "ifca", chosen("cluster-2"), REFUSED),
    ("no model that it chose", "ifca", without("chosen"), REFUSED),
    ("another model than the one that fits", "ifca", chosen("cluster-1"), BELIEVED),
    ("-1 steps", "fednova", number("local-steps", -1.0), REFUSED),
    ("steps of length 1e-300", "fedcm", number("local-length", 1e-300), REFUSED),
    ("a loss of 1e18", "afl", number("start-loss", 1e18), REFUSED),
    ("a loss below 0", "qfedavg", number("start-loss", -1.0), REFUSED),
    ("a loss of 1e18", "term", number("start-loss", 1e18), REFUSED),
    ("a loss that is not finite", "power-of-choice", number("loss", np.nan), REFUSED),
]
"""What a site sends, the rule that reads it, the lie, and what comes of it."""


def table():
    """What is refused, in a sentence, and what is believed, in a table; in Markdown, by rule."""
    refused = "; ".join(f"`{rule}`: {', '.join(_lies(rule, REFUSED))}" for rule in _rules(REFUSED))
    rows = (f"| `{rule}` | {', '.join(_lies(rule, BELIEVED))} |\n" for rule in _rules(BELIEVED))
    return fill(f"Refused with {refused}.", WIDTH) + "\n\n| with | is believed |\n|---|---|\n" + "".join(rows)


def _rules(effect):
    return dict.fromkeys(rule for _, rule, _, found in BY_RULE if found == effect)


def _lies(rule, effect):
    return [what for what, *lie in BY_RULE if (lie[0], lie[2]) == (rule, effect)]
