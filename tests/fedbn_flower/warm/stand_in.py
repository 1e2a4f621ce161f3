"""Starts a worker as `boot.py` does, of an app that does what a message says. Neither torch nor a model."""

import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

if __name__ == "__main__":
    start = json.load(sys.stdin)
    sys.path[:] = start.pop("path")
    for name in ("torch", "fedbn_flower.site.adapter"):
        sys.modules[name] = ModuleType(name)

    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.clientapp import ClientApp

    from fedbn_flower import client_app
    from fedbn_flower.core.errors import UserError
    from fedbn_flower.core.private import process_identity
    from fedbn_flower.warm import worker

    worker.SOON = 0.1
    worker.EVERY = 0.1
    client_app.app = app = ClientApp()

    @app.train()
    def train(message, context):
        asked = message.content["asked"]
        number = context.state.config_records.get("number", {"number": 0})["number"] + 1
        context.state["number"] = ConfigRecord({"number": number})
        with Path(asked["record"]).open("a") as file:
            file.write(f"{os.getpid()}\n")
        if Path(asked["record"]).read_text().count("\n") <= asked.get("times", 0):
            os.kill(os.getpid(), getattr(signal, asked["signal"]))
        match asked.get("do"):
            case "mistake":
                raise UserError("strategy: a mistake")
            case "raise":
                raise KeyError("key")
            case "exit":
                sys.exit(3)
            case "wait":
                while Path(asked["file"]).exists():
                    time.sleep(0.02)
                with Path(asked["record"]).open("a") as file:
                    file.write("committed\n")
            case "child":
                if not os.fork():
                    time.sleep(600)
            case "use a GPU":
                sys.modules["torch"].cuda = SimpleNamespace(is_initialized=lambda: True)
            case "tell":
                logging.getLogger("flwr.fedbn").info("a line of the log")
                print("a line of print")
                os.write(2, b"a line of C\n")
        answer = {"process": os.getpid(), "number": number, "task": process_identity()[2]}
        return Message(RecordDict({"answer": ConfigRecord(answer)}), reply_to=message)

    @app.query("complete")
    def complete(message, context):
        return Message(RecordDict(), reply_to=message)

    worker.Worker(**start).run()
