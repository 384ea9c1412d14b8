"""Ed25519 key pairs: making, reading, signing and checking. Public keys travel as 43 characters of base64url."""

import base64
import binascii
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from shared.errors import Misconfigured

_SHORT = 16


def generate_key() -> tuple[bytes, str]:
    """Make a new key pair: the private half as PKCS #8 PEM, the public half as text."""
    private = Ed25519PrivateKey.generate()
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), _public_text(private)


def public_key(private_pem: bytes) -> str:
    """Return the public half that belongs to a private one; raise Misconfigured if it is no Ed25519 key."""
    return _public_text(load_private(private_pem))


def fingerprint(public: str) -> str:
    """Return 16 hexadecimal digits by which a person tells keys apart."""
    return sha256(public.encode()).hexdigest()[:_SHORT]


def sign(private_pem: bytes, message: bytes) -> bytes:
    """Return the signature: 64 bytes that only the holder of this key can make for this message."""
    return load_private(private_pem).sign(message)


def signer_of(message: bytes, signature: bytes, known: Iterable[str]) -> str | None:
    """Return the first of the known public keys that made this signature of this message, or None."""
    for key in known:
        try:
            load_public(key).verify(signature, message)
        except InvalidSignature:
            continue
        return key
    return None


def load_private(pem: bytes) -> Ed25519PrivateKey:
    """Return the key in a PEM file; raise Misconfigured if it holds another kind, or none."""
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise Misconfigured("A private key file does not hold an Ed25519 key.", "Restore it, or run `butlers migrate`.")
    return key


@lru_cache(maxsize=256)
def load_public(text: str) -> Ed25519PublicKey:
    """Return the key that the text of a public half encodes; raise Misconfigured if it encodes none."""
    try:
        return Ed25519PublicKey.from_public_bytes(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
    except (ValueError, binascii.Error):
        raise Misconfigured("A public key of the keyring is not an Ed25519 key.", "Run `butlers migrate`.") from None


def _public_text(private: Ed25519PrivateKey) -> str:
    return base64.urlsafe_b64encode(private.public_key().public_bytes_raw()).rstrip(b"=").decode()
