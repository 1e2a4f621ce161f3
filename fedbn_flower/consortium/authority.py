"""Keys, certificates and signatures of a consortium: one authority, whose word every site can check."""

import base64
import hashlib
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import NameOID

from ..core.errors import UserError, not_allowed
from ..core.files import ONLY_OWNER, write_atomically

CA_CERTIFICATE, CA_KEY = "ca.crt", "secret/ca.key"
SERVER_CERTIFICATE, SERVER_KEY = "server.pem", "secret/server.key"
YEARS_OF_AUTHORITY, DAYS_OF_SERVER = 10, 365
EARLIER = timedelta(hours=1)
"""By how much a certificate is valid before it is made: clocks differ."""

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey


def new_key() -> PrivateKey:
    """Return a new private key on P-384, the curve that Flower's SuperNodes take."""
    return ec.generate_private_key(ec.SECP384R1())


def write_key(path: Path, key: PrivateKey, form: PrivateFormat = PrivateFormat.PKCS8) -> None:
    """Write a private key that nobody but its owner can read, into a folder of which that is so, too."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(path, key.private_bytes(Encoding.PEM, form, NoEncryption()), ONLY_OWNER)


def public_text(key: PublicKey) -> str:
    """Return a public key as ssh writes it: its kind and its bytes in base 64."""
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def fingerprint(key: PublicKey) -> str:
    """Return the fingerprint of a public key, as ``ssh-keygen -l`` shows it."""
    blob = base64.b64decode(public_text(key).split()[1])
    return f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip('=')}"


def public_key(text: str) -> PublicKey:
    """Return the public key of a text.

    Raises
    ------
    UserError
        When it is not one on P-384.
    """
    try:
        key = load_ssh_public_key(text.encode())
    except Exception:  # cryptography raises errors of several kinds
        key = None
    if not isinstance(key, PublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise not_allowed("key", text, "a public key 'ecdsa-sha2-nistp384 AAAA...', as join prints it")
    return key


def make_authority(folder: Path, name: str) -> None:
    """Write the certificate of a new authority into a folder, and its key below ``secret``."""
    key, subject = new_key(), _name(f"{name} authority")
    made = _certificate(subject, subject, key.public_key(), 365 * YEARS_OF_AUTHORITY, key, True)
    write_key(folder / CA_KEY, key)
    write_atomically(folder / CA_CERTIFICATE, made.public_bytes(Encoding.PEM))


def make_server_certificate(folder: Path, names: Iterable[str]) -> datetime:
    """Write a new key and certificate of the SuperLink, by a folder's authority; return until when it holds.

    ``names`` are the names and addresses under which it is reached.
    """
    authority, ca_key = certificate_in(folder / CA_CERTIFICATE), _private(folder)
    key = new_key()
    made = _certificate(
        authority.subject, _name("SuperLink"), key.public_key(), DAYS_OF_SERVER, ca_key, False,
        x509.SubjectAlternativeName([_alternative(name) for name in names]),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
    )  # fmt: skip
    write_key(folder / SERVER_KEY, key)
    write_atomically(folder / SERVER_CERTIFICATE, made.public_bytes(Encoding.PEM))
    return made.not_valid_after_utc


def certificate_in(path: Path) -> x509.Certificate:
    """Return the certificate of a file.

    Raises
    ------
    UserError
        When it cannot be read, or is none.
    """
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path.name}: no certificate can be read from {str(path)!r} ({error})") from None


def authority_fingerprint(path: Path) -> str:
    """Return the fingerprint of the key of the authority whose certificate is in a file."""
    return fingerprint(_key_of(path))


def sign(folder: Path, content: bytes) -> bytes:
    """Return the signature of a folder's authority on a content, the same each time."""
    return _private(folder).sign(content, ec.ECDSA(SHA384(), deterministic_signing=True))


def is_signed(certificate: Path, content: bytes, signature: bytes) -> bool:
    """Return whether a signature on a content is that of an authority."""
    with suppress(InvalidSignature):
        _key_of(certificate).verify(signature, content, ec.ECDSA(SHA384()))
        return True
    return False


def _key_of(path: Path) -> PublicKey:
    key = certificate_in(path).public_key()
    if not isinstance(key, PublicKey):
        raise UserError(f"{path.name}: expected a key of an elliptic curve in {str(path)!r}")
    return key


def _private(folder: Path) -> PrivateKey:
    try:
        key = load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"authority: its key {str(folder / CA_KEY)!r} cannot be read ({error})") from None
    if not isinstance(key, PrivateKey) or key.public_key() != _key_of(folder / CA_CERTIFICATE):
        raise UserError(f"authority: {str(folder / CA_KEY)!r} is not the key of its {CA_CERTIFICATE}")
    return key


def _certificate(
    issuer: x509.Name, subject: x509.Name, key: PublicKey, days: int, signer: PrivateKey, signs: bool,
    *others: x509.ExtensionType,
) -> x509.Certificate:  # fmt: skip
    """``signs`` says whether it is an authority's, which signs other certificates."""
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().issuer_name(issuer).subject_name(subject).public_key(key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - EARLIER)
    # of a key: signatures, and of an authority certificates and their lists
    usage = x509.KeyUsage(True, False, False, False, False, signs, signs, False, False)
    critical = x509.BasicConstraints(ca=signs, path_length=0 if signs else None), usage
    for one in (x509.SubjectKeyIdentifier.from_public_key(key), *critical, *others):
        builder = builder.add_extension(one, critical=one in critical)
    return builder.not_valid_after(now + timedelta(days)).sign(signer, SHA384())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(name: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ip_address(name))
    return x509.DNSName(name)
