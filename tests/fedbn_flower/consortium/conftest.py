"""A consortium of three sites, whose kits are unpacked."""

import subprocess
import zipfile

import pytest
from cryptography.hazmat.primitives.serialization import PrivateFormat

from fedbn_flower.consortium import operator
from fedbn_flower.consortium import site as site_module
from fedbn_flower.consortium.authority import fingerprint, new_key, public_text, write_key
from fedbn_flower.consortium.site import AtSite

SITES = ("lyon", "turin", "porto")


def unpacked(archive, folder):
    """A kit in a folder, its programs executable."""
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
    subprocess.run(["chmod", "+x", *(folder / name for name in ("join", "leave", "run"))], check=True)
    return AtSite(folder)


def line_of(site, key=None):
    public = (key or new_key()).public_key()
    return f"{site} {public_text(public)} {fingerprint(public)}"


@pytest.fixture(autouse=True)
def no_systemd(tmp_path, monkeypatch):
    """Nothing is installed on the machine of the tests."""
    monkeypatch.setattr(site_module, "BOOTED", tmp_path / "nowhere")


@pytest.fixture
def folder(tmp_path):
    operator.new(tmp_path / "hospitals", "superlink.example.org", SITES, ["10.0.0.5"], {"secagg-min": 3})
    return tmp_path / "hospitals"


@pytest.fixture
def site(folder, tmp_path):
    """Lyon, which has data and a key, before it is admitted."""
    at = unpacked(folder / "kits" / "lyon.zip", tmp_path / "lyon")
    data = tmp_path / "data"
    data.mkdir()
    (data / "table.csv").write_text("age,dose,ill\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(60)))
    at.own.mkdir()
    (at.own / "site.toml").write_text(f'data = "{data}"\n')
    (at.own / "studies").write_text("")
    write_key(at.own / "site.key", new_key(), PrivateFormat.OpenSSH)
    return at
