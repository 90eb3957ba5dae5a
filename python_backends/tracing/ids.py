"""Ids that follow from what they name: whoever tells of a span gives it the same one."""

import hashlib


def derived_id(*parts: object) -> int:
    """64 bits that follow from the parts alone."""
    told = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(told.encode(errors="replace")).digest()[:8])
