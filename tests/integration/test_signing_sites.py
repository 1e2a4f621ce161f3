"""Three real SuperNodes that sign in secure aggregation, with the keys that they authenticate with."""

import csv
import json
from collections import Counter

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.numpy import load

pytest.importorskip("fedbn_flower.consortium")
pytest.importorskip("fedbn_flower.secagg")

from fedbn_flower.config.making import run_config
from fedbn_flower.consortium.local import LocalFederation
from tests.fedbn_flower.secagg.grids import Lossy, run_on
from tests.fedbn_flower.secagg.keyed import written_pair

from .processes import FORKING, LONG, bits, start_flwr_run, tracebacks, wait_for

pytestmark = pytest.mark.slow

SITES = 3
JOB = {
    "num-clients": SITES, "partition": "iid", "client": "shared", "model": "2nn", "dataset": "digits",
    "local-epochs": 1, "rounds": 2, "clip-update-norm": 1.0, "secagg": "on", "fraction-evaluate": 0.0,
}  # fmt: skip


def failures(folder):
    path = folder / "failures.csv"
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def test_sites_sign_and_refuse_one_that_they_do_not_know(tmp_path, cache_dir, undrawn_app):
    """A run has the bits of plain sums. In the first round of the next one the third site's key is another
    than its partners have; then no site can read its partners' keys."""
    federation = LocalFederation(tmp_path / "federation", SITES, signing=True)
    federation.environment |= FORKING
    job = {**JOB, "cache-dir": str(cache_dir)}

    def start(name, **keys):
        return start_flwr_run(federation, undrawn_app, tmp_path, name, **job | keys)

    with federation:
        start("known").wait(LONG)
        partners = federation.folder / "partners"
        third = (partners / "site-2.pub").read_bytes()
        written_pair(Ed25519PrivateKey.generate(), tmp_path / "another", "site-2")
        (tmp_path / "another" / "partners" / "site-2.pub").replace(partners / "site-2.pub")
        refusing = start("refusing", rounds=3)
        wait_for(lambda: failures(tmp_path / "refusing"), refusing)
        (partners / "site-1.pub").write_text("no key")
        (partners / "site-2.pub").write_bytes(third)
        refusing.wait(LONG)
        logs = [(federation.folder / f"site-{i}" / "log.txt").read_text() for i in range(SITES)]
    output, refused = ((tmp_path / f"{name}.log").read_text() for name in ("known", "refusing"))
    config = run_config({**job, "secagg": "plain", "backend": "inline"})
    expected = run_on(config, Lossy(config))[1]
    found = load(bits(tmp_path / "known"))
    assert all(expected[name].endswith(array.tobytes()) for name, array in found.items()), output
    summary = json.loads((tmp_path / "known" / "summary.json").read_text())
    assert summary["extensions"]["secagg"]["signed"] == SITES

    line = "secagg: the secagg-partners of partition 0, partition 1 do not have its key"
    assert f"round 1, train: partition 2 dropped: {line}" in refused
    assert "there is no sum: 2 clients are left, and secagg-min is 3" in refused
    rows = failures(tmp_path / "refusing")
    reasons = {row["partition"]: row["reason"] for row in rows if row["round"] == "1"}
    assert [line in reasons[site] for site in "012"] == [False, False, True]
    mistaken = Counter(row["partition"] for row in rows if "expected public keys of Ed25519" in row["reason"])
    assert all(mistaken[site] >= 1 for site in "012"), rows
    assert not any(str(tmp_path) in row["reason"] for row in rows)
    for i in range(SITES):
        key = federation.folder / f"site-{i}" / "key"
        files = [path for path in tmp_path.rglob("*") if path.is_file() and path != key]
        assert not [path for path in files if key.read_bytes().splitlines()[-2] in path.read_bytes()]
    for i, log in enumerate(logs):
        assert log.count("secagg-partners: '") == mistaken[str(i)]
        assert "site-1.pub has something else" in log
        assert not tracebacks(log)
