"""Fresh ids: drawn by lot, and so outside of the core, where ids derive from what is asked for."""

import base64
import os


def fresh_id(prefix: str) -> str:
    """`prefix-` and 12 characters: 60 random bits."""
    return f"{prefix}-{base64.b32encode(os.urandom(10))[:12].decode().lower()}"
