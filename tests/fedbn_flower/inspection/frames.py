"""Tables of which all rows are training rows, without a file."""

from dataclasses import replace

import numpy as np
import pandas as pd

from fedbn_flower.data import Dataset, Request
from fedbn_flower.data.column_text import numeric
from fedbn_flower.data.dataset import Split
from fedbn_flower.data.numeric import Table
from fedbn_flower.files.tables.doubts import rounded_off
from fedbn_flower.files.tables.features import encode, parse_columns
from fedbn_flower.models import InputSpec


def dataset_of(frame, label):
    """As a file of these columns is read, whose ``label`` is classes, or numbers if some are fractions."""
    frame = pd.DataFrame(frame)
    features, y = parse_columns(Request("t"), frame, [label]), frame[label].to_numpy()
    predicts = "numbers" if y.dtype.kind == "f" and (y % 1).any() else "classes"
    classes, codes = np.unique(y, return_inverse=True)
    outputs = 1 if predicts == "numbers" else len(classes)
    rest, facts, _ = rounded_off(features, frame, [])
    x = encode(features, frame)
    facts |= {
        "predicts": predicts,
        "outputs": outputs,
        "targets": [label],
        "numbers": [place for place, _ in numeric(features)],
        "columns": [{"name": feature.name, "values": list(feature.values)} for feature in features],
    }
    train = Split({"x": x, **rest, "y": y[:, None].astype(np.float32) if outputs == 1 else codes})
    empty = Dataset.without_examples(InputSpec(x.shape[1:], outputs, predicts))
    names = tuple(map(str, classes)) if outputs > 1 else ()
    return replace(empty, kind=Table(facts, train.columns), train=train, class_names=names)
