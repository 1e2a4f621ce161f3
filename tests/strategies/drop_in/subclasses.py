"""Subclasses as people write them for Flower's strategies: each makes a class's body for a base class."""

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from ..helpers import ndarrays, record


def schedule(base):
    """Tells the clients a learning rate of the round."""

    def configure_train(self, server_round, arrays, config, grid):
        config["lr"] = 0.1 * 0.5 ** (server_round - 1)
        return base.configure_train(self, server_round, arrays, config, grid)

    return {"configure_train": configure_train}


def other_content_for_each_node(base):
    """A model of its own for every node, as with personal or pruned models."""

    def configure_train(self, server_round, arrays, config, grid):
        messages = []
        for message in base.configure_train(self, server_round, arrays, config, grid):
            node = message.metadata.dst_node_id
            own = {name: array * np.float32(1 + 0.1 * node) for name, array in ndarrays(arrays).items()}
            output = ConfigRecord({**config, "node": node})
            content = RecordDict({"arrays": record(own), "config": output})
            messages.append(Message(content, dst_node_id=node, message_type="train"))
        return messages

    return {"configure_train": configure_train}


def other_nodes(base):
    """More messages than were sampled, and to other nodes."""

    def configure_train(self, server_round, arrays, config, grid):
        base.configure_train(self, server_round, arrays, config, grid)
        content = RecordDict({"arrays": arrays, "config": config})
        return [Message(content, dst_node_id=node, message_type="train") for node in range(6)]

    return {"configure_train": configure_train}


def nothing_of_the_super_class(base):
    """Its own sampling, without a word to the base class."""

    def configure_train(self, server_round, arrays, config, grid):
        self.current_arrays = record(ndarrays(arrays)) if base.__name__ == "FedAvgM" else ndarrays(arrays)
        config["server-round"] = server_round
        content = RecordDict({"arrays": arrays, "config": config})
        return self._construct_messages(content, sorted(grid.get_node_ids())[:3], "train")

    return {"configure_train": configure_train}


def second_round_only(base):
    def configure_evaluate(self, server_round, arrays, config, grid):
        if server_round % 2:
            return []
        return base.configure_evaluate(self, server_round, arrays, config, grid)

    return {"configure_evaluate": configure_evaluate}


def buffered(base):
    """Aggregates the replies of the round before too, as an asynchronous server."""

    def aggregate_train(self, server_round, replies):
        replies, before = list(replies), getattr(self, "buffer", [])
        self.buffer = replies
        return base.aggregate_train(self, server_round, before + replies)

    return {"aggregate_train": aggregate_train}


def reweighted(base):
    """Replies made anew with other weights."""

    def aggregate_train(self, server_round, replies):
        made = []
        for reply in replies:
            output = MetricRecord(
                {**reply.content["metrics"], "num-examples": 1.0 + reply.metadata.src_node_id}
            )
            content = RecordDict({"arrays": reply.content["arrays"], "metrics": output})
            made.append(Message(content, dst_node_id=1, message_type="train"))
        return base.aggregate_train(self, server_round, made)

    return {"aggregate_train": aggregate_train}


def changed_result(base):
    """Keeps the best, adds a metric, and moves the result."""

    def aggregate_train(self, server_round, replies):
        arrays, metrics = base.aggregate_train(self, server_round, replies)
        metrics["lowest"] = min(getattr(self, "lowest", 9.0), metrics["loss"])
        self.lowest = metrics["lowest"]
        return record({name: array * np.float32(0.5) for name, array in ndarrays(arrays).items()}), metrics

    return {"aggregate_train": aggregate_train}


def own_evaluation(base):
    def aggregate_evaluate(self, server_round, replies):
        replies = list(replies)
        metrics = base.aggregate_evaluate(self, server_round, replies)
        metrics["worst"] = max(reply.content["metrics"]["loss"] for reply in replies)
        return metrics

    return {"aggregate_evaluate": aggregate_evaluate}


def helpers_of_flower(base):
    """Aggregates by itself, with the helpers of Flower's FedAvg."""

    def aggregate_train(self, server_round, replies):
        valid, errors = self._check_and_log_replies(replies, is_train=True)
        contents = [reply.content for reply in valid]
        metrics = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        metrics["failures"] = len(errors)
        return min(contents, key=lambda one: one["metrics"]["loss"])["arrays"], metrics

    return {"aggregate_train": aggregate_train}


def own_check(base):
    """Replaces what the base class does with the replies first."""

    def _check_and_log_replies(self, replies, is_train, validate=True):
        valid, errors = base._check_and_log_replies(self, replies, is_train, validate)
        return sorted(valid, key=lambda reply: reply.metadata.src_node_id)[1:], errors

    return {"_check_and_log_replies": _check_and_log_replies}


def own_messages(base):
    def _construct_messages(self, record, node_ids, message_type):
        output = ConfigRecord({**record["config"], "of": len(node_ids)})
        content = RecordDict({"arrays": record["arrays"], "config": output})
        return base._construct_messages(self, content, sorted(node_ids)[:3], message_type)

    return {"_construct_messages": _construct_messages}


def own_start(base):
    def start(self, grid, initial_arrays, num_rounds=3, **more):
        halved = {name: array / np.float32(2) for name, array in ndarrays(initial_arrays).items()}
        return base.start(self, grid, record(halved), num_rounds + 1, **more)

    return {"start": start}


def later_settings(base):
    """Changes its own settings between rounds."""

    def configure_train(self, server_round, arrays, config, grid):
        self.min_train_nodes = 4
        self.weighted_by_key = "steps" if server_round == 2 else "num-examples"
        return base.configure_train(self, server_round, arrays, config, grid)

    def configure_evaluate(self, *given):
        self.weighted_by_key = "num-examples"
        return base.configure_evaluate(self, *given)

    return {"configure_train": configure_train, "configure_evaluate": configure_evaluate}


BODIES = [
    schedule, other_content_for_each_node, other_nodes, nothing_of_the_super_class,
    second_round_only, buffered, reweighted, changed_result, own_evaluation,
    helpers_of_flower, own_check, own_messages, own_start, later_settings,
]  # fmt: skip
