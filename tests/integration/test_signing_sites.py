"""Three real SuperNodes that sign in secure aggregation, with the keys that they authenticate with."""

import csv
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.numpy import load

from deploy.local_federation import LocalFederation
from fedbn_flower.config.making import run_config
from tests.fedbn_flower.extensions.secagg.grids import Lossy, run_on
from tests.fedbn_flower.extensions.secagg.keyed import written_pair

from .guide import SOONER
from .processes import ROOT, bits

pytestmark = pytest.mark.slow

SITES = 3
JOB = {
    "num-clients": SITES, "partition": "iid", "client": "fedavg", "model": "2nn", "dataset": "digits",
    "local-epochs": 1, "rounds": 2, "clip-update-norm": 1.0, "secagg": "on",
}  # fmt: skip


def test_sites_sign_and_refuse_one_that_they_do_not_know(tmp_path, cache_dir):
    """A run has the bits of plain sums. In the next one the third site's key is another than its partners
    have; then a site has no partners' keys at all."""
    federation = LocalFederation(tmp_path / "federation", SITES, signing=True)
    federation.environment |= SOONER
    once = {"rounds": 1, "fraction-evaluate": 0.0}
    job = {**JOB, "cache-dir": str(cache_dir)}

    def run(name, **keys):
        given = {**job, "run-dir": str(tmp_path / name), **keys}
        words = " ".join(f"{key}={value!r}" for key, value in given.items())
        command = ["flwr", "run", ROOT, "local", "--stream", "--run-config", words]
        return federation.run(command, quiet=True).stdout

    with federation:
        output = run("known")
        partners = federation.folder / "partners"
        third = (partners / "site-2.pub").read_bytes()
        written_pair(Ed25519PrivateKey.generate(), tmp_path / "another", "site-2")
        (tmp_path / "another" / "partners" / "site-2.pub").replace(partners / "site-2.pub")
        refused = run("foreign", **once)
        (partners / "site-2.pub").write_bytes(third)
        (partners / "site-1.pub").write_text("no key")
        run("mistaken", **once)
        logs = [(federation.folder / f"site-{i}" / "log.txt").read_text() for i in range(SITES)]
    config = run_config({**job, "secagg": "plain", "backend": "inline"})
    expected = run_on(config, Lossy(config))[1]
    found = load(bits(tmp_path / "known"))
    assert all(expected[name].endswith(array.tobytes()) for name, array in found.items()), output
    summary = json.loads((tmp_path / "known" / "summary.json").read_text())
    assert summary["extensions"]["secagg"]["signed"] == SITES
    assert (
        "keys of their own (secagg-key): each sum at least 3" in (tmp_path / "known/report.html").read_text()
    )

    line = "secagg: the secagg-partners of partition 0, partition 1 do not have its key"
    assert f"round 1, train: partition 2 dropped: {line}" in refused
    assert "there is no sum: 2 clients are left, and secagg-min is 3" in refused
    with (tmp_path / "foreign" / "failures.csv").open() as file:
        reasons = {row["partition"]: row["reason"] for row in csv.DictReader(file) if row["phase"] == "train"}
    assert [line in reasons[site] for site in "012"] == [False, False, True]
    with (tmp_path / "mistaken" / "failures.csv").open() as file:
        reasons = [row["reason"] for row in csv.DictReader(file)]
    assert any("expected public keys of Ed25519" in reason for reason in reasons)
    assert not any(str(tmp_path) in reason for reason in reasons)
    for i in range(SITES):
        key = federation.folder / f"site-{i}" / "key"
        files = [path for path in tmp_path.rglob("*") if path.is_file() and path != key]
        assert not [path for path in files if key.read_bytes().splitlines()[-2] in path.read_bytes()]
    for log in logs:
        assert log.count("secagg-partners: '") == 1
        assert "site-1.pub has something else" in log
        assert "Traceback" not in log
