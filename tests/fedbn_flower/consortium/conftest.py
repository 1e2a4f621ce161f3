"""A consortium of three sites, whose kits are unpacked."""

import re
import shutil
import subprocess
import tomllib
import zipfile

import pytest
import tomli_w
from cryptography.hazmat.primitives.serialization import PrivateFormat

from fedbn_flower.consortium import operator
from fedbn_flower.consortium import site as site_module
from fedbn_flower.consortium.authority import fingerprint, new_key, public_text, write_key
from fedbn_flower.consortium.site import AtSite

from ...integration.processes import ROOT

SITES = ("lyon", "turin", "porto")
PAGE = (ROOT / "docs" / "how-to" / "consortium.md").read_text()
STUDY = re.search(r'```toml title="study.toml"\n(.*?)```', PAGE, re.DOTALL)[1]
"""The page's, for which the data of `site` are."""


def written(path, **keys):
    """The page's study with other keys, in a file; a key that is None is left out."""
    keys = tomllib.loads(STUDY) | {key.replace("_", "-"): value for key, value in keys.items()}
    path.write_text(tomli_w.dumps({key: value for key, value in keys.items() if value is not None}))
    return path


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


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The folder that tests have a copy of."""
    folder = tmp_path_factory.mktemp("made") / "hospitals"
    operator.new(folder, "superlink.example.org", SITES, ["10.0.0.5"], {"secagg-min": 3})
    return folder


@pytest.fixture
def folder(made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "hospitals")
    for path in (folder / "superlink").iterdir():  # which name it
        path.write_text(path.read_text().replace(str(made), str(folder)))
    return folder


@pytest.fixture
def site(folder, tmp_path):
    """Lyon, which has data and a key, before it is admitted."""
    at = unpacked(folder / "kits" / "lyon.zip", tmp_path / "lyon")
    data = tmp_path / "data"
    data.mkdir()
    rows = (f"{i},{i % 7},{'fm'[i % 2]},{('no', 'yes')[i % 3 == 0]}\n" for i in range(60))
    (data / "table.csv").write_text("age,dose,sex,ill\n" + "".join(rows))
    at.own.mkdir()
    (at.own / "site.toml").write_text(f'data = "{data}"\n')
    (at.own / "studies").write_text("")
    write_key(at.own / "site.key", new_key(), PrivateFormat.OpenSSH)
    return at
