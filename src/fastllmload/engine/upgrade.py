"""The upgrade of a connection to WebSocket (RFC 6455 4): what a client asks, and what the server has to answer."""

from __future__ import annotations

import base64
import hashlib
import os

KEY_BYTES = 16
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def new_key() -> str:
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


def upgrade_fields(key: str) -> str:
    """The fields that make a GET an upgrade, each ended by CRLF."""
    return f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"


def accept_of(key: str) -> str:
    """The value of Sec-WebSocket-Accept for *key*."""
    return base64.b64encode(hashlib.sha1((key + GUID).encode(), usedforsecurity=False).digest()).decode()
