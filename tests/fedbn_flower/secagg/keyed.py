"""Sites with keys of their own, and a roster of all of them."""

import base64
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from flwr.app import Context, RecordDict

from fedbn_flower.secagg.signatures import Signer

from .grids import Lossy


def written_pair(private, folder, name, pem=True):
    """Write a pair of keys, in PEM or as SuperNodes have them; the private key's path."""
    folder.mkdir(exist_ok=True)
    (folder / "partners").mkdir(exist_ok=True)
    encoding, form = (
        (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo) if pem else (Encoding.OpenSSH, PublicFormat.OpenSSH)
    )
    of_private = PrivateFormat.PKCS8 if pem else PrivateFormat.OpenSSH
    (folder / name).write_bytes(private.private_bytes(Encoding.PEM, of_private, NoEncryption()))
    public = private.public_key().public_bytes(encoding, form)
    (folder / "partners" / f"{name}.pub").write_bytes(public)
    return folder / name


def node_configs(folder, number):
    """What sites have in their node configs: Ed25519 and P-384, in PEM and OpenSSH by turns."""
    kinds = (Ed25519PrivateKey.generate, lambda: generate_private_key(SECP384R1()))
    paths = [
        written_pair(kinds[place // 2 % 2](), folder, f"site-{place}", pem=place % 2 == 0)
        for place in range(number)
    ]
    return [{"secagg-key": str(path), "secagg-partners": str(folder / "partners")} for path in paths]


class Keyed(Lossy):
    """A grid on which sites have these node configs; see `Lossy`."""

    def __init__(self, config, configs, lost=None, changed=None):
        super().__init__(config, lost, changed)
        self.configs = configs

    def _context(self, partition):
        context = super()._context(partition)
        context.node_config = {**context.node_config, **self.configs[partition]}
        return context


def private_parts(configs):
    """What of the private keys of sites must be nowhere: their bytes, as they may be spelt."""
    for config in configs:
        text = Path(config["secagg-key"]).read_bytes()
        private = signer_of(config).private
        if isinstance(private, Ed25519PrivateKey):
            raw = private.private_bytes_raw()
        else:
            raw = private.private_numbers().private_value.to_bytes(48, "big")
        yield from (raw, raw.hex().encode(), base64.b64encode(raw), repr(raw)[2:-1].encode())
        yield text.splitlines()[-2]


def signer_of(config, number=1, run=1):
    """The one of a node with this config, in a round of a run."""
    return Signer.of(Context(run, 0, config, RecordDict(), {}), number)


def other_than(configs, place, folder):
    """The node config of a site, with a key of the server's."""
    return {**configs[place], "secagg-key": str(written_pair(Ed25519PrivateKey.generate(), folder, "own"))}
