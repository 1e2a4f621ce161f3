"""A ServerApp that is not honest: it asks a site for whatever it likes, and writes down what came back."""

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedbn_flower.config.making import run_config
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.strategies.messages.npy import encoded

RUN = "20260101T000000000000-0000000a"
QUESTIONS = {
    "train, with an evaluation": ("train", {"eval-splits": "train,test", "classes": 10}),
    "train at a rate that diverges": ("train", {"client-lr": 1e30}),
    "evaluate on training examples": ("evaluate", {"eval-splits": "train"}),
    "evaluate": ("evaluate", {"eval-splits": "test", "fine-tune": 3}),
    "counts": ("query.counts", {}),
    "moments": ("query.moments", {}),
    "sizes": ("query.sizes", {}),
}

app = ServerApp()


def replies(grid: Grid, asked: Iterable[str]) -> Iterator[Message]:
    waiting = set(asked)
    while waiting:
        for reply in grid.pull_messages(waiting):
            waiting.remove(reply.metadata.reply_to_message_id)
            yield reply
        time.sleep(0.3)


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = run_config(context.run_config)
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.5)
    inputs = inputs_of(config)
    model = {name: encoded(inputs.initial().entries[name]) for name in inputs.split.shared}
    names, answers = {}, {}
    for name, (kind, asked) in QUESTIONS.items():
        given = {"server-round": 1, "checkpoint-round": 0, "run": RUN, "eval-splits": "", "client-lr": 0.1}
        content = RecordDict({"arrays": ArrayRecord(model), "config": ConfigRecord(given | asked)})
        (message_id,) = grid.push_messages([Message(content, nodes[0], kind)])
        names[message_id] = name
    for reply in replies(grid, names):
        name = names[reply.metadata.reply_to_message_id]
        if reply.has_error():
            answers[name] = reply.error.reason
            continue
        records = reply.content.items()
        numbers = {key: dict(record) for key, record in records if isinstance(record, MetricRecord)}
        answers[name] = {"records": sorted(key for key, _ in records), **numbers}
    Path(config.run_dir).write_text(json.dumps(answers))
