"""Malformed answers of every kind, and the model that they are about."""

import pickle
from io import BytesIO

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord
from flwr.common.constant import SType

from ..helpers import train_reply

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
    (0,), (-1,), (10**12,), (2**62, 2**62), (10**4, 10**4, 10**4), (7, 7), 5, None, ("a",), (1.5,),
]  # fmt: skip

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
