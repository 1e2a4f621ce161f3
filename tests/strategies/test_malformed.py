"""10,000 malformed answers: none changes the model by a bit, none ends the run, all are counted."""

import pickle
from io import BytesIO

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import SType
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from strategies import STRATEGIES

from .helpers import CannedGrid, record, train_reply

HONEST, LIARS, ROUNDS = 3, 50, 20
COMBINATIONS = [(rule, "weighted") for rule in STRATEGIES] + [("fednova", "median"), ("scaffold", "trimmed")]
assert LIARS * ROUNDS * len(COMBINATIONS) >= 10_000

MODEL = {
    "layer.weight": np.ones((2, 3), np.float32),
    "bn.weight": np.ones(3, np.float32),
    "bn.running_var": np.ones(3, np.float32),
    "bn.num_batches_tracked": np.array(10, np.int64),
}

EXPLODED = []


class Bomb:
    def __reduce__(self):
        return EXPLODED.append, ("unpickled",)


# ---- lies about one entry: the array that was honest -> an Array that must be refused -----------------


def npy(array, version=(1, 0)):
    file = BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


def raw(array, data, stype=SType.NUMPY):
    """Claims to be like ``array``, whatever the bytes are."""
    return Array(str(array.dtype), array.shape, stype, data)


def header(array, **changes):
    """The bytes of an array under a header that lies."""
    fields = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape} | changes
    text = f"{fields}\n".encode()
    return raw(array, b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + array.tobytes())


def spoilt(rng, array):
    """One value, or all, that no weight should have; a counter is made absurd."""
    array = array.copy()
    lies = (np.nan, np.inf, -np.inf, 1e30, -3e38) if array.dtype.kind == "f" else (2**62, -(2**63))
    array[np.unravel_index(rng.integers(array.size), array.shape)] = rng.choice(lies)
    return Array(array)


def of_another_dtype(rng, array):
    kinds = ["i4", "?", "c8", "U3", "M8[s]", "V4", ">i8", "u8"] + (
        ["i8"] if array.dtype.kind == "f" else ["f4"]
    )
    return Array(np.zeros(array.shape, rng.choice(kinds)))  # fmt: skip


def zipped(array):
    file = BytesIO()
    np.savez(file, array)
    return file.getvalue()


ABSURD_SHAPES = [
    (0,),
    (-1,),
    (10**12,),
    (2**62, 2**62),
    (10**4, 10**4, 10**4),
    (7, 7),
    5,
    None,
    ("a",),
    (1.5,),
]

ENTRY_LIES = {
    "not finite or absurd": spoilt,
    "dtype": of_another_dtype,
    "shape": lambda rng, a: Array(np.zeros((1, *a.shape) if rng.random() < 0.5 else (a.size + 1,), a.dtype)),
    "truncated": lambda rng, a: raw(a, npy(a)[: rng.integers(len(npy(a)))]),
    "trailing bytes": lambda rng, a: raw(a, npy(a) + rng.bytes(int(rng.integers(1, 99)))),
    "far too many bytes": lambda rng, a: raw(a, npy(a, version=(2, 0)) + bytes(5000)),  # np.load would
    "random bytes": lambda rng, a: raw(a, rng.bytes(int(rng.integers(300)))),
    "broken magic": lambda rng, a: raw(a, rng.bytes(6) + npy(a)[6:]),
    "absurd header": lambda rng, a: header(a, shape=ABSURD_SHAPES[rng.integers(len(ABSURD_SHAPES))]),
    "nonsense header": lambda rng, a: header(a, descr=["O", "nonsense", 7, [("x", "<f4")]][rng.integers(4)]),
    "pickled objects": lambda rng, a: raw(a, npy(np.array([Bomb()], object))),
    "pickle": lambda rng, a: raw(a, pickle.dumps(Bomb())),
    "zip archive": lambda rng, a: raw(a, zipped(a)),
    "serialisation": lambda rng, a: raw(a, npy(a), stype=str(rng.choice(["", "torch", "numpy.ndarray.v2"]))),
}

# ---- lies about the rest of an answer ---------------------------------------------------------------


def metrics(**values):
    def lie(rng, content):
        found = {"num-examples": 1, "local-steps": 5} | {
            k.replace("_", "-"): v(rng) for k, v in values.items()
        }
        content["metrics"] = MetricRecord({k: v for k, v in found.items() if v is not None})

    return lie


def without(name):
    def lie(rng, content):
        del content[name]

    return lie


def renamed(rng, content):
    arrays = dict(content["arrays"])
    arrays[rng.bytes(4).hex()] = arrays.pop(rng.choice(list(MODEL)))
    content["arrays"] = ArrayRecord(arrays)


def extra_name(rng, content):
    content["arrays"] = ArrayRecord(dict(content["arrays"]) | {"x" * 10**5: Array(np.ones(1))})


def wrong_arrays(rng, content):
    """Two records of which neither has the right name, or a record of another type, or an empty one."""
    kind = rng.integers(3)
    arrays = content.pop("arrays")
    if kind == 0:
        content.pop("control", None)
        content["a"] = content["b"] = arrays
    else:
        content["arrays"] = ConfigRecord({"a": 1}) if kind == 1 else ArrayRecord()
        content["control"] = ArrayRecord()


def two_metrics(rng, content):
    content["more"] = MetricRecord({"num-examples": 1})


def empty(rng, content):
    content.clear()


CONTENT_LIES = {
    "no weight": metrics(num_examples=lambda rng: None),
    "not positive": metrics(num_examples=lambda rng: int(rng.integers(-(2**63), 1))),
    "weight not finite": metrics(num_examples=lambda rng: float(rng.choice([np.nan, np.inf, -np.inf]))),
    "huge weight": metrics(num_examples=lambda rng: int(rng.integers(2**53 + 1, 2**63 - 1))),
    "list of weights": metrics(num_examples=lambda rng: [1] * int(rng.integers(9))),
    "integer beyond 64 bits": metrics(num_examples=lambda rng: 10 ** int(rng.integers(20, 9999))),
    "metric beyond 64 bits": metrics(loss=lambda rng: -(10 ** int(rng.integers(20, 9999)))),
    "no arrays": without("arrays"),
    "no metrics": without("metrics"),
    "two metrics": two_metrics,
    "wrong arrays": wrong_arrays,
    "renamed": renamed,
    "extra name": extra_name,
    "empty": empty,
}

RULE_LIES = {
    "fednova": {
        "no steps": metrics(local_steps=lambda rng: None),
        "steps": metrics(local_steps=lambda rng: [0, -5, 2.5, np.nan, np.inf, [5], 2**60][rng.integers(7)]),
    },
    "scaffold": {"no control": without("control")},
}

MESSAGE_LIES = ("silent", "error", "error of Flower's own", "no content", "second answer")


def lie_of(kind, seed, message):
    """The replies to ``message`` of a liar; the details of its lie follow from the seed."""
    rng = np.random.default_rng(seed)
    reply = train_reply(message, {name: array + array.dtype.type(7) for name, array in MODEL.items()})
    content = reply.content
    lies = CONTENT_LIES | RULE_LIES["fednova"] | RULE_LIES["scaffold"]
    if kind in lies:
        lies[kind](rng, content)
    elif kind in ENTRY_LIES:
        records = [name for name in ("arrays", "control") if name in content]
        arrays = dict(content[rng.choice(records)])
        name = rng.choice(list(arrays))
        target = next(r for r in reversed(records) if set(content[r]) == set(arrays))
        arrays[name] = ENTRY_LIES[kind](rng, arrays[name].numpy())
        content[target] = ArrayRecord(arrays)
    elif kind == "silent":
        return []
    elif kind == "error":
        return [Message(Error(int(rng.integers(99)), str(rng.choice(["", "x\n" * 9999]))), reply_to=message)]
    elif kind == "error of Flower's own":
        reply = Message(Error(5, "Node Unavailable"), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = 1
    elif kind == "no content":
        reply.__dict__["_content"] = None
    else:
        content["metrics"] = MetricRecord({"num-examples": 0})
        return [reply, train_reply(message, MODEL), train_reply(message, MODEL)]
    return [reply]


# ---- the property -----------------------------------------------------------------------------------


def model_of(partition, server_round):
    rng = np.random.default_rng([partition, server_round])
    return {
        name: (rng.random(array.shape) * 3 + array).astype(array.dtype) for name, array in MODEL.items()
    }  # fmt: skip


def second_round(rule, mean, lies, honest):
    """A strategy after two rounds, the second with these lies: it, and the model or None."""
    cls = STRATEGIES[rule]
    strategy, extra = cls(mean=mean, trim=0.34), []
    grid = CannedGrid(HONEST + LIARS, None)

    def client(server_round, message, partition):
        if partition < HONEST:
            answers = server_round == 1 or honest
            return train_reply(message, model_of(partition, server_round), partition + 1) if answers else None
        if server_round == 1 or partition - HONEST >= len(lies):
            return None
        replies = lie_of(*lies[partition - HONEST], message)
        extra.extend(replies[1:])
        return replies[0] if replies else None

    arrays = record(MODEL)
    for server_round in (1, 2):
        grid.client = lambda m, i, t=server_round: client(t, m, i)
        messages = strategy.configure_train(server_round, arrays, ConfigRecord(), grid)
        replies = list(grid.send_and_receive(messages))
        updated, _ = strategy.aggregate_train(server_round, replies + extra)
        arrays = updated or arrays
    return strategy, updated


def state_bits(strategy):
    return {
        name: vector.tobytes() for name, vector in strategy.rule_state.vectors.items()
    }, strategy.rule_state.updates


@pytest.mark.parametrize(("rule", "mean"), COMBINATIONS)
def test_a_malformed_answer_costs_itself_and_nothing_else(rule, mean):
    kinds = [*ENTRY_LIES, *CONTENT_LIES, *RULE_LIES.get(rule, {}), *MESSAGE_LIES]
    one_lie = st.tuples(st.sampled_from(kinds), st.integers(0, 2**32 - 1))
    expected = {honest: second_round(rule, mean, [], honest) for honest in (True, False)}
    counted = 0

    # Without shrinking: a failure names the lies that were believed.
    @settings(max_examples=ROUNDS, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
    @given(st.lists(one_lie, min_size=LIARS, max_size=LIARS), st.booleans())
    def check(lies, honest):
        nonlocal counted
        strategy, updated = second_round(rule, mean, lies, honest)
        before, unharmed = expected[honest]
        failures = strategy.phase_report.failures
        believed = [lie for i, lie in enumerate(lies, start=HONEST) if i not in failures]
        assert not believed
        if honest:
            assert [(n, a.data) for n, a in updated.items()] == [(n, a.data) for n, a in unharmed.items()]
        else:
            assert updated is None
        assert state_bits(strategy) == state_bits(before)
        assert set(strategy.phase_report.metrics) == (set(range(HONEST)) if honest else set())
        honest_but_silent = set() if honest else set(range(HONEST))
        assert failures.keys() == set(range(HONEST, HONEST + LIARS)) | honest_but_silent
        assert all(reason and len(reason) <= 500 for reason in failures.values())
        counted += len(failures.keys() - honest_but_silent)

    check()
    assert counted >= LIARS * ROUNDS
    assert not EXPLODED


def kinds_of_metrics():
    checked_by_rules = {"no arrays", "wrong arrays", "renamed", "extra name"}
    return [*(CONTENT_LIES.keys() - checked_by_rules - {"huge weight"}), *MESSAGE_LIES]


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_an_evaluation_cannot_be_spoilt_either(data):
    one_lie = st.tuples(st.sampled_from(sorted(kinds_of_metrics())), st.integers(0, 2**32 - 1))
    lies = data.draw(st.lists(one_lie, min_size=LIARS, max_size=LIARS))
    extra = []

    def client(message, partition):
        if partition < HONEST:
            found = MetricRecord({"num-examples": partition + 1, "loss": float(partition)})
            return Message(RecordDict({"metrics": found}), reply_to=message)
        replies = lie_of(*lies[partition - HONEST], message)
        extra.extend(replies[1:])
        return replies[0] if replies else None

    strategy, grid = STRATEGIES["fedavg"](), CannedGrid(HONEST + LIARS, client)
    messages = strategy.configure_evaluate(1, record(MODEL), ConfigRecord(), grid)
    mean = strategy.aggregate_evaluate(1, list(grid.send_and_receive(messages)) + extra)
    assert dict(mean) == {"loss": pytest.approx((0 * 1 + 1 * 2 + 2 * 3) / 6)}
    assert set(strategy.phase_report.failures) == set(range(HONEST, HONEST + LIARS))


@pytest.mark.parametrize("rule", ["fednova", "scaffold"])
def test_without_its_lie_an_answer_is_good(rule, monkeypatch):
    """So it is the lies that are refused above, not what they are made from."""
    monkeypatch.setitem(CONTENT_LIES, "truth", lambda rng, content: None)
    strategy, _ = second_round(rule, "weighted", [("truth", 0)], honest=True)
    assert set(strategy.phase_report.metrics) == set(range(HONEST + 1))
