"""Short proofs that this house made something: an HMAC over a name and a text. Pure."""

import hashlib
import hmac
from base64 import urlsafe_b64encode


def tag(key: bytes, *fields: str) -> str:
    """Return 22 characters that only a holder of the key can make for exactly these fields (HMAC-SHA256, 128 bits)."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for text in fields:
        raw = text.encode("utf-8", "surrogatepass")
        mac.update(len(raw).to_bytes(8, "big") + raw)
    return urlsafe_b64encode(mac.digest()[:16]).rstrip(b"=").decode()


def tag_matches(key: bytes, candidate: str, *fields: str) -> bool:
    """Return whether `candidate` is the tag of these fields, in a time that tells nothing about the right one."""
    return hmac.compare_digest(candidate.encode("utf-8", "surrogatepass"), tag(key, *fields).encode())
