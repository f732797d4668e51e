"""Self-signed certificates, made by the openssl command, for tests of TLS."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command makes the certificates")
HERE = ("DNS:localhost", "IP:127.0.0.1")


EC = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
RSA = ("rsa:2048",)  # takes a fifth of a second of a core


def certificate(
    directory: Path, name: str, hosts: Sequence[str] = HERE, days: int = 2, kind: Sequence[str] = EC
) -> tuple[Path, Path]:
    """A certificate named *name* for *hosts* (`DNS:...`, `IP:...`) that signs itself, and its key, both PEM.

    *days* -1: it expired yesterday.
    """
    made, key, asked, extension = (directory / f"{name}.{kind}" for kind in ("pem", "key", "csr", "ext"))
    extension.write_text(f"subjectAltName={','.join(hosts)}\nbasicConstraints=CA:TRUE\n")
    request = ["req", "-new", "-newkey", *kind, "-nodes", "-keyout", str(key), "-subj", f"/CN={name}"]
    signed = ["x509", "-req", "-in", str(asked), "-signkey", str(key), "-days", str(days), "-extfile", str(extension)]
    for arguments in ([*request, "-out", str(asked)], [*signed, "-out", str(made)]):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
    return made, key
