"""Makes Flower's examples comparable, in every process that has this folder on its PYTHONPATH.

- What they would download is made here: small data sets of the same columns.
- ServerApps and each call of a ClientApp begin with seeded random numbers, by partition and round.
- Replies reach the ServerApp in the order of the partitions; under Flower it is that of their arrival.
- What a run came to is written to the folder ``COMPARE_OUT``: metrics, final arrays, and every reply.
"""

import importlib.abc
import importlib.machinery
import json
import os
import random
import shutil
import sys
import threading
import time
from pathlib import Path

OUT = os.environ.get("COMPARE_OUT", "")
ROWS = int(Path(OUT, "rows").read_text()) if Path(OUT, "rows").exists() else 400


def seed(*numbers):
    import numpy as np

    word = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    random.seed(word)
    np.random.seed(word)
    if "torch" in sys.modules and hasattr(sys.modules["torch"], "manual_seed"):
        sys.modules["torch"].manual_seed(word)
    if "monai" in sys.modules:  # its transforms have generators of their own
        sys.modules["monai"].utils.set_determinism(word)


def images(shape, name, rows):
    """Pictures whose brightness depends on their class, which is ``label``."""
    import numpy as np
    from datasets import ClassLabel, Dataset, Features, Image
    from PIL import Image as Picture

    rng = np.random.default_rng(0)
    labels = np.arange(rows) % 10
    noise = rng.integers(0, 60, (rows, *shape))
    pixels = (noise + labels.reshape(-1, *[1] * len(shape)) * 18).astype(np.uint8)
    columns = {name: [Picture.fromarray(one) for one in pixels], "label": labels.tolist()}
    return Dataset.from_dict(columns, Features({name: Image(), "label": ClassLabel(num_classes=10)}))


def table(**columns):
    from datasets import Dataset

    return Dataset.from_dict({name: list(values) for name, values in columns.items()})


def iris(names, target):
    from sklearn.datasets import load_iris

    data = load_iris()
    return table(**dict(zip(names, data.data.T.tolist(), strict=True)), **{target: data.target.tolist()})


def adult():
    import numpy as np

    rng = np.random.default_rng(0)
    numeric = ["age", "fnlwgt", "education.num", "capital.gain", "capital.loss", "hours.per.week"]
    words = ["workclass", "education", "marital.status", "occupation", "relationship", "race", "sex"]
    columns = {name: rng.integers(0, 90, ROWS).tolist() for name in numeric}
    for name in [*words, "native.country"]:
        columns[name] = [f"{name}-{i}" for i in rng.integers(0, 4, ROWS)]
    columns["income"] = [">50K" if age > 45 else "<=50K" for age in columns["age"]]
    return table(**columns)


def titanic():
    import numpy as np

    rng = np.random.default_rng(0)
    titles = ["Mr", "Mrs", "Miss", "Master"]
    names = [f"{titles[i]}. {'x' * j}" for i, j in rng.integers(0, 4, (ROWS, 2))]
    sexes = [["male", "female"][i] for i in rng.integers(0, 2, ROWS)]
    return table(
        **{
            "Survived": [int(sex == "female") for sex in sexes],
            "Pclass": rng.integers(1, 4, ROWS).tolist(),
            "Name": names,
            "Sex": sexes,
            "Age": rng.uniform(1, 80, ROWS).tolist(),
            "Siblings/Spouses Aboard": rng.integers(0, 4, ROWS).tolist(),
            "Parents/Children Aboard": rng.integers(0, 4, ROWS).tolist(),
            "Fare": rng.uniform(5, 90, ROWS).tolist(),
        }
    )


def higgs(rows):
    import numpy as np

    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(rows, 8)).round(4)
    return table(inputs=inputs.tolist(), label=(inputs[:, 0] + inputs[:, 1] > 0).astype(float).tolist())


def patch_monai(module):
    """Make MedNIST where the process is: folders of pictures, which are a bit brighter by class."""
    if Path("MedNIST").exists():
        return
    folder = Path(f"MedNIST-{os.getpid()}")
    for i, (picture, label) in enumerate(zip(*grey_pictures(), strict=True)):
        (folder / f"class-{label % 6}").mkdir(parents=True, exist_ok=True)
        picture.save(folder / f"class-{label % 6}" / f"{i:04}.jpeg")
    try:
        folder.rename("MedNIST")
    except OSError:  # another process was first
        shutil.rmtree(folder)


def grey_pictures():
    data = images((64, 64), "image", ROWS)
    return data["image"], data["label"]


def splits_of(name):
    """Return the splits of a data set, by the last part of its name."""
    kind = name.rpartition("/")[2].lower()
    if kind in ("mnist", "fashion_mnist"):
        return {"train": images((28, 28), "image", ROWS), "test": images((28, 28), "image", ROWS // 4)}
    if kind == "cifar10":
        return {"train": images((32, 32, 3), "img", ROWS), "test": images((32, 32, 3), "img", ROWS // 4)}
    if name == "scikit-learn/iris":
        names = ["SepalLengthCm", "SepalWidthCm", "PetalLengthCm", "PetalWidthCm"]
        return {"train": iris(names, "Species")}
    if name == "hitorilabs/iris":
        return {"train": iris(["sepal_length", "sepal_width", "petal_length", "petal_width"], "species")}
    made = {"adult-census-income": adult, "titanic-survival": titanic}
    if kind in made:
        return {"train": made[kind]()}
    if kind == "higgs":
        return {"train": higgs(ROWS), "test": higgs(ROWS // 4)}
    raise LookupError(f"no data set {name!r} here")


def load_dataset(path, name=None, *, split=None, **_):
    """Stand in for ``datasets.load_dataset``."""
    from datasets import DatasetDict

    splits = DatasetDict(splits_of(path))
    return splits if split is None else splits[split]


def patch_datasets(module):
    module.load_dataset = load_dataset


def round_of(message):
    for config in message.content.config_records.values():
        for key in ("server-round", "current_round", "server_round", "round"):
            if isinstance(config.get(key), int):
                return config[key]
    return int(message.metadata.group_id) if message.metadata.group_id.isdecimal() else 0


def patch_typing(module):
    from flwr.app import UserConfig  # where examples of other versions look for it

    module.UserConfig = UserConfig


def patch_client(module):
    sys.modules.setdefault("flwr.client.typing", sys.modules["flwr.clientapp.typing"])  # likewise
    sys.modules.setdefault("flwr.client.client", sys.modules["flwr.compat.client.client"])
    call = module.ClientApp.__call__

    def seeded(self, message, context):
        kind = {"train": 1, "evaluate": 2}.get(message.metadata.message_type.partition(".")[0], 3)
        seed(1, context.node_config["partition-id"], round_of(message), kind)
        reply = call(self, message, context)
        reply.metadata.__dict__["_partition"] = context.node_config["partition-id"]
        return reply

    module.ClientApp.__call__ = seeded


def patch_server(module):
    call = module.ServerApp.__call__

    def recorded(self, grid, context):
        seed(0)
        made, replies, depth = [], [], threading.local()
        from flwr.server.history import History
        from flwr.server.server import Server
        from flwr.serverapp.strategy import Result

        for one in (Result, History, Server):
            init = one.__init__

            def initialise(self, *args, _init=init, **kwargs):
                _init(self, *args, **kwargs)
                made.append(self)

            one.__init__ = initialise
        for method in (grid.send_and_receive, grid.pull_messages):

            def receive(*args, _method=method, **kwargs):
                inside, depth.inside = getattr(depth, "inside", False), True
                try:
                    found = list(_method(*args, **kwargs))
                finally:
                    depth.inside = inside
                if not inside:  # send_and_receive may pull itself
                    found.sort(key=lambda one: one.metadata.__dict__.get("_partition", -1))
                    replies.extend(found)
                return found

            setattr(grid, method.__name__, receive)
        started = time.time()
        call(self, grid, context)
        write(made, {id(reply): reply for reply in replies}.values(), time.time() - started)

    module.ServerApp.__call__ = recorded


def write(made, replies, seconds):
    import numpy as np
    from flwr.common import parameters_to_ndarrays

    found, arrays, errors = {}, {}, 0
    for one in made:
        kind = type(one).__name__
        if kind == "Result":
            for name in (
                "train_metrics_clientapp",
                "evaluate_metrics_clientapp",
                "evaluate_metrics_serverapp",
            ):
                for number, metrics in getattr(one, name).items():
                    found |= {f"{name} {number} {key}": value for key, value in metrics.items()}
            arrays |= {key: array.numpy() for key, array in one.arrays.items()}
        elif kind == "History":
            for name, value in vars(one).items():
                found[name] = json.loads(json.dumps(value, default=str))
        elif one.parameters.tensors and one.parameters.tensor_type == "numpy.ndarray":
            arrays |= {str(i): a for i, a in enumerate(parameters_to_ndarrays(one.parameters))}
    of_clients = {}
    for reply in replies:
        if reply.has_error():
            errors += 1
            continue
        for record, metrics in reply.content.metric_records.items():
            for key, value in metrics.items():
                place = f"{reply.metadata.message_type} {record} {key}"
                of_clients.setdefault(place, []).append(value)
        for record, some in reply.content.array_records.items():
            for key, array in some.items():
                place = f"{reply.metadata.message_type} {record} {key}"
                of_clients.setdefault(place, []).append(float(np.abs(array.numpy().astype(float)).sum()))
    of_clients = {place: sorted(values) for place, values in of_clients.items()}
    name = f"{OUT}/{os.getpid()}-{time.time_ns()}"
    np.savez(f"{name}.npz", **arrays)
    content = {"results": found, "clients": of_clients, "errors": errors, "seconds": seconds}
    with open(f"{name}.tmp", "w") as file:
        json.dump(content, file)
    os.rename(f"{name}.tmp", f"{name}.json")


PATCHES = {
    "datasets": patch_datasets,
    "datasets.load": patch_datasets,
    "flwr.common.typing": patch_typing,
    "monai": patch_monai,
    "flwr.clientapp.client_app": patch_client,
    "flwr.serverapp.server_app": patch_server,
}


class Patcher(importlib.abc.MetaPathFinder):
    """Patches modules once they have been executed."""

    def find_spec(self, fullname, path, target=None):
        if fullname not in PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            PATCHES[fullname](module)

        spec.loader.exec_module = exec_module
        return spec


if OUT:
    sys.meta_path.insert(0, Patcher())
