"""How a worker hands its replies over."""

import pickle

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from fedbn_flower.runtime.grid import identify_process
from fedbn_flower.runtime.ray.worker import LARGE, send_out_of_band
from strategies.messages.npy import decoded, encoded


def test_large_arrays_travel_beside_the_pickle_and_are_read_in_place():
    identify_process()
    arrays = {"large": np.arange(LARGE, dtype=np.float32), "small": np.arange(3)}
    content = {
        "arrays": ArrayRecord({name: encoded(a) for name, a in arrays.items()}),
        "metrics": MetricRecord(),
    }
    reply = Message(RecordDict(content), dst_node_id=1, message_type="train")
    send_out_of_band(reply)
    buffers = []
    pickled = pickle.dumps(reply, protocol=5, buffer_callback=buffers.append)
    assert len(pickled) < LARGE
    record = pickle.loads(pickled, buffers=buffers).content["arrays"]
    assert isinstance(record["large"].data, memoryview)
    for name, array in arrays.items():
        np.testing.assert_array_equal(decoded(record[name], array), array)
        np.testing.assert_array_equal(record[name].numpy(), array)
    assert np.shares_memory(
        decoded(record["large"], arrays["large"]), np.frombuffer(buffers[0].raw(), np.uint8)
    )
