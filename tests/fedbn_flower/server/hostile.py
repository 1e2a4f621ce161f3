"""Sites that lie, in each phase of a run, each with four honest ones in one process: what comes of it."""

import json
import logging
from textwrap import fill
from types import SimpleNamespace

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from clients import METRICS, Classification, Predicted
from fedbn_flower.core.errors import RunFailed
from fedbn_flower.core.input_spec import InputSpec
from fedbn_flower.job.checks.expected_metrics import expected_metrics
from fedbn_flower.job.site_facts import SiteCounts
from fedbn_flower.records.events import deciding
from fedbn_flower.records.metrics import medians, pooled_metrics, round_means
from fedbn_flower.server.questions import check_names, sites_counts, sites_scale
from strategies import STRATEGIES
from strategies.messages.nodes import NodeDirectory

from ...strategies.helpers import MODEL, CannedGrid, moved, record, train_reply

LIAR, SITES, CAP = 4, 5, 1000
REFUSED, BOUNDED, BELIEVED, ENDS = "refused", "bounded", "believed", "the end of the run"
WIDTH = 120
OF_RULE = {
    "--mean median": {"mean": "median"},
    "--mean trimmed": {"mean": "trimmed", "trim": 0.2},
    "--mean krum:1": {"mean": "krum:1"},
    "--mean multi-krum:1,2": {"mean": "multi-krum:1,2"},
    "--mean geometric-median": {"mean": "geometric-median"},
    "--mean centered-clip:1": {"mean": "centered-clip:1"},
    "--clip-update-norm": {"clip_update_norm": 1.0},
    "--max-num-examples": {"max_weight": CAP},
}
CAPPED, NORMALIZE = "--max-num-examples", "--normalize median"
MEDIAN, MEAN, SERVER = "--decide-by median", "--decide-by mean", "--decide-by server"
ROBUST = tuple(option for option in OF_RULE if option.startswith("--mean"))
UNWEIGHTED = tuple(option for option in ROBUST if option != "--mean geometric-median")
PREDICTED = Predicted("classes", 2)
PLAIN = Classification()
WITH_METRICS = PLAIN.with_metrics({"f1": METRICS["f1"](PREDICTED), "ece": METRICS["ece"](PREDICTED)})
BINS = 15


class Asked(CannedGrid):
    """Answers a query by a function of (message, node)."""

    def work(self, messages, timeout):
        for message in messages:
            if (reply := self.client(message, message.metadata.dst_node_id)) is not None:
                yield reply


def answered(message, content):
    """The reply with these records; an error for a text, none for None."""
    if content is None:
        return None
    given = Error(1, content) if isinstance(content, str) else RecordDict(content)
    return Message(given, reply_to=message)


def sites(honest, lie):
    """A grid: the honest answer with what a function of their node gives, and the liar with its lie."""
    return Asked(SITES, lambda message, i: answered(message, lie(honest(i)) if i == LIAR else honest(i)))


def identity(lie, option=""):
    """Whether the site is asked by a partition of its own."""
    directory = NodeDirectory(ask=True, node_timeout=1, query_timeout=1)
    grid = sites(lambda node: {"partition": ConfigRecord({"partition-id": node})}, lie)
    nodes = directory.connected(grid, SITES, "")
    assert nodes[:LIAR] == list(range(LIAR))
    return BELIEVED if LIAR in directory._partition_ids else REFUSED


def asking(option):
    rule = STRATEGIES["fedavg"](**OF_RULE.get(option, {}))
    rule.node_directory.connected(CannedGrid(SITES, None), SITES, "")
    config = SimpleNamespace(normalize="median" if option == NORMALIZE else True, round_timeout=1.0)
    spec = InputSpec((1,), 2, "classes")
    known = {"has_examples": False, "has_classes": True, "has_masks": False, "spec": spec}
    return SimpleNamespace(config=config, dataset=SimpleNamespace(**known)), rule


def moments(lie, option=""):
    """Whether the mean that all standardise by lies beyond those of the honest: 1, 2, 3 and 4."""

    def honest(node):
        numbers = {"counts": [10.0], "means": [1.0 + node], "squares": [10.0]}
        return {"moments": ArrayRecord({name: Array(np.array(value)) for name, value in numbers.items()})}

    log = Log()
    found = sites_scale(*asking(option), sites(honest, lie))
    if log.stop("left out"):
        assert found["feature-mean"] == [2.5]
        return REFUSED
    assert np.isfinite([*found["feature-mean"], *found["feature-std"]]).all()
    return BOUNDED if 1 <= found["feature-mean"][0] <= 4 else BELIEVED


def names(lie, option=""):
    """Whether the run goes on, and the names of the honest are those of all."""
    honest, log, ended = json.dumps({"classes": ["normal", "pathologic"]}), Log(), False
    try:
        grid = sites(lambda node: {"names": ConfigRecord({"names": honest})}, lie)
        check_names(*asking(option), grid)
    except RunFailed as error:
        ended = f"at site {LIAR}" in str(error) and str(error).isprintable()
    refused = log.stop("left out")
    return ENDS if ended else REFUSED if refused else BELIEVED


def counts(lie, option=""):
    """Whether a site's counts are on the page."""
    honest = SiteCounts(train=10, val=0, test=0, classes=[6, 4], features=[]).model_dump_json()
    grid = sites(lambda node: {"counts": ConfigRecord({"counts": honest})}, lie)
    found = sites_counts(*asking(option), grid)
    assert found.keys() >= set(range(LIAR))
    return BELIEVED if LIAR in found else REFUSED


def train(lie, option="", rule="fedavg"):
    """Whether the model, or SCAFFOLD's c, moves beyond what the honest sent: by 1, 2, 3 and 4."""

    def client(message, node):
        reply = train_reply(message, moved(1 + min(node, LIAR - 1)), 10)
        return answered(message, lie(dict(reply.content))) if node == LIAR else reply

    strategy = STRATEGIES[rule](**OF_RULE.get(option, {}))
    strategy.expected_metrics = expected_metrics(PLAIN, 2)
    grid = CannedGrid(SITES, client)
    messages = strategy.configure_train(1, record(MODEL), ConfigRecord(), grid)
    updated, _ = strategy.aggregate_train(1, grid.send_and_receive(messages))
    change = updated["layer.weight"].numpy() - 1
    if LIAR in strategy.phase_report.failures:
        assert (change == 2.5).all() or change.max() <= 1
        return REFUSED
    shortest = 0 if option in ("--clip-update-norm", "--mean centered-clip:1") else 1
    within = shortest <= change.min() <= change.max() <= 4
    c = strategy.rule_state.vectors.get("c", np.zeros(1))
    return BOUNDED if within and abs(c).max() <= 1 else BELIEVED


def honest_evaluation():
    """Ten examples, half of them right."""
    calibration = np.zeros((3, BINS))
    calibration[:, 7] = 10, 5, 5
    states = {"confusion-matrix": np.array([[3, 2], [3, 2]]), "calibration": calibration}
    metrics = {"num-examples": 10, "loss": 1.0, "accuracy": 0.5, "eval-examples": 10}
    metrics |= {"f1": 4 / 9, "ece": 0.0, "class-hits": [3, 2], "class-examples": [5, 5]}
    return metrics, states


def evaluate(lie, option="", problem=WITH_METRICS, headline="f1"):
    """Whether what decides is no longer what the honest report."""

    def client(message, node):
        metrics, states = honest_evaluation()
        content = {"metrics": metrics, "states": states}
        if node == LIAR and not isinstance(content := lie(content), dict):
            return answered(message, content)
        records = {"metrics": MetricRecord(content["metrics"])} if "metrics" in content else {}
        if content.get("states") and problem.chosen:
            records["states"] = ArrayRecord({name: Array(state) for name, state in content["states"].items()})
        return answered(message, records)

    strategy = STRATEGIES["fedavg"]()
    strategy.expected_metrics = expected_metrics(problem, 2, CAP if option == CAPPED else 2.0**53)
    grid = CannedGrid(SITES, client)
    messages = strategy.configure_evaluate(1, record(MODEL), ConfigRecord(), grid)
    mean = strategy.aggregate_evaluate(1, grid.send_and_receive(messages))
    report = strategy.phase_report
    means = round_means(None, mean, report, False, problem)
    pooled = pooled_metrics(report, means, problem)
    expected = honest_evaluation()[0][headline]
    every = {**means, **medians(report.metrics.values(), problem), f"global-{headline}": expected}
    every |= {f"pooled-{name}": value for name, value in pooled.items()}
    by = option.removeprefix("--decide-by ") if option.startswith("--decide-by") else "pooled"
    moves = abs(deciding(every, headline, by) - expected) > 1e-9
    if LIAR in report.failures:
        assert not moves
        return REFUSED
    return BELIEVED if moves else BOUNDED


def accuracy(lie, option=""):
    """The same of a run without further metrics."""
    return evaluate(lie, option, PLAIN, "accuracy")


class Log(logging.Handler):
    """What is logged until `stop`; each line is one, printable, and not long."""

    def __init__(self):
        super().__init__()
        self.lines = []
        logging.getLogger("flwr.fedbn").addHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())

    def stop(self, words):
        """The lines with these words."""
        logging.getLogger("flwr.fedbn").removeHandler(self)
        assert all(line.isprintable() and len(line) < 800 for line in self.lines)
        return [line for line in self.lines if words in line]


# ---- lies: the honest records -> those that are sent ---------------------------------------------------


def partition(value, kind=ConfigRecord):
    return lambda content: {"partition": kind({"partition-id": value})}


def numbers(**values):
    def lie(content):
        changed = {name: Array(np.array([value], np.float64)) for name, value in values.items()}
        return {"moments": ArrayRecord({**content["moments"], **changed})}

    return lie


def model(change):
    def lie(content):
        arrays = {name: array.numpy().copy() for name, array in content["arrays"].items()}
        content["arrays"] = ArrayRecord({name: Array(change(array)) for name, array in arrays.items()})
        return content

    return lie


def floats(value):
    """All floats but variances, which are ranged."""

    def lie(content):
        changed = model(lambda array: np.full_like(array, value) if array.dtype.kind == "f" else array)
        kept = {name: array for name, array in content["arrays"].items() if "running_var" in name}
        content = changed(content)
        content["arrays"] = ArrayRecord({**content["arrays"], **kept})
        return content

    return lie


def reports(**values):
    def lie(content):
        changed = {name.replace("_", "-"): value for name, value in values.items()}
        kept = {name: v for name, v in {**content["metrics"], **changed}.items() if v is not None}
        content["metrics"] = MetricRecord(kept)
        return content

    return lie


def says(**values):
    def lie(content):
        content["metrics"] |= {name.replace("_", "-"): value for name, value in values.items()}
        return content

    return lie


def state(name, change):
    def lie(content):
        content["states"][name] = change(content["states"][name])
        return content

    return lie


def text(value, record="counts"):
    return lambda content: {record: ConfigRecord({record: value})}


def pickled(content):
    content["arrays"] = ArrayRecord(
        {n: Array("float32", (2, 3), "numpy.ndarray", b"\x80\x04.") for n in MODEL}
    )
    return content


def control(content):
    arrays = {name: np.full_like(array.numpy(), 1e6) for name, array in content["control"].items()}
    content["control"] = record(arrays)
    return content


def all_wrong(content):
    content["states"]["confusion-matrix"] = np.array([[0, 5], [5, 0]])
    return content


def without_states(content):
    return {**content, "states": {}}


def claims(**values):
    none = {"train": 0, "val": 0, "test": 0, "classes": [], "features": []}
    return text(json.dumps(none | values))


def poor_and_large(content):
    return floats(-10.0)(reports(num_examples=2**53)(content))


other_names = text(json.dumps({"classes": ["abnormal", "\x1b[2Jnormal"]}), "names")
many_held_out = says(accuracy=0.9, eval_examples=2**53, class_examples=[2**53 - 5, 5])
NOBODY = "\x1b[31m" + "no luck, /srv/ward/7\n" * 30_000

LIES = {
    "Who it is": [
        ("a partition that is text", identity, partition("1"), REFUSED, ()),
        ("the partition of another site", identity, partition(1), REFUSED, ()),
        ("no record, or one of another kind", identity, partition(1, MetricRecord), REFUSED, ()),
    ],
    "Names of classes": [
        ("an error of 600 kB with escapes", names, lambda c: NOBODY, REFUSED, ()),
        ("nothing, until the timeout", names, lambda c: None, REFUSED, ()),
        ("no JSON", names, text("[" * 10**5, "names"), REFUSED, ()),
        ("numbers instead of names", names, text('{"classes": [0, 1]}', "names"), REFUSED, ()),
        ("other names than the others", names, other_names, ENDS, ()),
    ],
    "Statistics for normalize": [
        ("an error of 600 kB with escapes", moments, lambda c: NOBODY, REFUSED, ()),
        ("nothing, until the timeout", moments, lambda c: None, REFUSED, ()),
        ("half an example", moments, numbers(counts=1.5), REFUSED, ()),
        ("squares that no numbers have", moments, numbers(squares=-1.0), REFUSED, ()),
        ("numbers that are not finite", moments, numbers(means=np.nan), REFUSED, ()),
        ("text instead of arrays", moments, lambda c: {"moments": ConfigRecord({"a": "b"})}, REFUSED, ()),
        ("one example of 3e38", moments, numbers(counts=1, means=3e38, squares=0), BELIEVED, (NORMALIZE,)),
        ("2^53 examples", moments, numbers(counts=2**53, means=9, squares=0), BELIEVED, (CAPPED, NORMALIZE)),
    ],
    "Counts for inspect": [
        ("no JSON", counts, text("[" * 10**5), REFUSED, ()),
        ("2^60 examples", counts, claims(train=2**60, classes=[0, 2**60]), REFUSED, ()),
        ("other classes than the run has", counts, claims(train=1, classes=[1]), REFUSED, ()),
    ],
    "Training": [
        ("an error of 600 kB with escapes", train, lambda c: NOBODY, REFUSED, ()),
        ("nothing, until the timeout", train, lambda c: None, REFUSED, ()),
        ("values that are not finite", train, floats(np.nan), REFUSED, ()),
        ("other shapes", train, model(lambda array: np.zeros((7, 7), array.dtype)), REFUSED, ()),
        ("other types", train, model(lambda array: array.astype("U8")), REFUSED, ()),
        ("a pickle", train, pickled, REFUSED, ()),
        ("no number of examples", train, reports(num_examples=None), REFUSED, ()),
        ("a list of numbers of examples", train, reports(num_examples=[1, 2]), REFUSED, ()),
        ("a metric with the name of a column", train, reports(round=1), REFUSED, ()),
        ("101 further metrics", train, reports(**{f"m{i}": 1 for i in range(101)}), REFUSED, ()),
        ("a metric's name with escapes", train, reports(**{"\x1b[2J": 1}), REFUSED, ()),
        ("an update of length 1e15", train, floats(1e15), BELIEVED, (*ROBUST, "--clip-update-norm")),
        ("an update in the other direction", train, floats(-10.0), BELIEVED, (*ROBUST, "--clip-update-norm")),
        ("2^53 examples and a poor model", train, poor_and_large, BELIEVED, (*UNWEIGHTED, CAPPED)),
    ],
    "Evaluation": [
        ("an accuracy of 7", evaluate, says(accuracy=7.0), REFUSED, ()),
        ("a loss below 0", evaluate, says(loss=-1.0), REFUSED, ()),
        ("hits above the examples of a class", evaluate, says(class_hits=[9, 0]), REFUSED, ()),
        ("classes of more examples than it has", evaluate, says(class_examples=[50, 50]), REFUSED, ()),
        ("no state of a metric of the run", evaluate, without_states, REFUSED, ()),
        ("a confusion matrix of 2^40", evaluate, state("confusion-matrix", lambda s: s * 2**36), REFUSED, ()),
        ("a calibration with negative counts", evaluate, state("calibration", lambda s: -s), REFUSED, ()),
        ("a confusion matrix in which all is wrong", evaluate, all_wrong, BELIEVED, (MEDIAN, MEAN, SERVER)),
        ("an accuracy of 1", accuracy, says(accuracy=1.0), BELIEVED, (MEDIAN, SERVER)),
        ("2^53 held-out examples", accuracy, many_held_out, BELIEVED, (CAPPED, MEDIAN, SERVER)),
    ],
}
"""By phase: what a site sends, the phase with it, what comes of it without an option, and the options that
help."""


def table(phase):
    """The phase's lies in Markdown: those that are refused in a sentence, the others in a table."""
    refused = [name for name, _, _, effect, _ in LIES[phase] if effect == REFUSED]
    lines = [fill(f"Refused: {'; '.join(refused)}.", WIDTH) + "\n"]
    others = [lie for lie in LIES[phase] if lie[3] != REFUSED]
    if others:
        lines.append("\n| a site sends | it is | what helps |\n|---|---|---|\n")
    for name, _, _, effect, options in others:
        lines.append(f"| {name} | {effect} | {', '.join(f'`{option}`' for option in options)} |\n")
    return "".join(lines)
