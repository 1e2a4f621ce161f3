"""The federation of docs/deployment.md, and what is asked of it."""

import contextlib
import csv
import os
import shutil
import threading
import time

from safetensors.numpy import load_file

from fedbn_flower.config.making import run_config
from fedbn_flower.consortium.local import wait_until_answers
from fedbn_flower.runtime.grid import InlineGrid, partition_of
from fedbn_flower.server.federation import Federation

from .guide import SITES, Guide
from .processes import FORKING, end, light_app

SILOS = {"dataset": "digits", "partition": "silos:0-4,5-9", "num-clients": 2}


@contextlib.contextmanager
def supervised():
    """Services of which those that died are restarted, as systemd would."""
    services, over = {}, threading.Event()

    def watch():
        while not over.wait(0.5):
            for service in list(services.values()):
                service.supervise()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield services
    finally:
        over.set()
        watcher.join()


@contextlib.contextmanager
def hospital_in(folder, project, cache_dir, write_site):
    """The federation of the guide, up to where the sites have started. Each has its silo of the digits, and
    the user's app is a light one: that of an own app is not (`test_wheel`)."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    os.environ["FEDBN_TEST"] = mark
    try:
        with supervised() as services, Guide(folder, project, FORKING, services=services) as guide:
            guide.run("superlink", "superlink")
            wait_until_answers(guide.port)
            wait_until_answers(guide.open_port)
            config = run_config({**SILOS, "cache-dir": str(cache_dir)})
            user = guide.folder / "user"
            shutil.rmtree(user / "fedbn-flower")
            light_app(user / "fedbn-flower", project)
            shutil.copy(guide.folder / "superlink/etc/fedbn/ca.crt", user)
            for partition, site in enumerate(SITES):
                write_site(config, partition, guide.folder / site / "srv/fedbn")
                place = guide.folder / site / "fedbn-flower"
                shutil.copy(user / "ca.crt", place)
                guide.run("site", site)
                shutil.copy(place / "site.key.pub", user / "fedbn-flower" / f"{site}.key.pub")
            guide.run("user register", "user")
            for site in SITES:
                guide.run("site start", site)
            yield guide
    finally:
        del os.environ["FEDBN_TEST"]
        end(f"FEDBN_TEST={mark}")


class Missing(InlineGrid):
    """A simulation in which some clients do not answer some train messages: {(round, partition)}.

    Those of ``missing`` never train; those of ``lost`` train, and their answers are lost.
    """

    def __init__(self, config, missing, lost):
        super().__init__(config.num_clients, config.to_user_config())
        self.missing, self.lost = missing, lost

    def work(self, messages, timeout):
        for message in messages:
            facts = message.content.config_records.get("config", {})
            training = message.metadata.message_type == "train"
            place = (facts["server-round"], partition_of(message)) if training else None
            if place not in self.missing:
                answers = list(super().work([message], timeout))
                yield from () if place in self.lost else answers


def simulated(cache_dir, rounds, missing=(), lost=(), **keys):
    """The shared model of a simulation of the two silos."""
    keys |= {"rounds": rounds, "cache-dir": str(cache_dir), "fraction-evaluate": 0}
    config = run_config({**SILOS, **keys})
    arrays = Federation(config).run(Missing(config, set(missing), set(lost)), [])
    return {name: array.numpy().tobytes() for name, array in arrays.items()}


def results(guide, name):
    return guide.folder / "superlink/var/lib/fedbn/runs" / name


def model(folder):
    return {name: a.tobytes() for name, a in load_file(folder / "model.safetensors").items()}


def rounds_done(folder):
    metrics = folder / "metrics.csv"
    return metrics.read_text().count("\n") - 1 if metrics.exists() else 0


def rounds_trained(folder, partition):
    with (folder / "clients.csv").open() as file:
        return [int(row["round"]) for row in csv.DictReader(file) if row["partition"] == str(partition)]
