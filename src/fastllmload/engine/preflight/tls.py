"""TLS in the preflight: the same settings as the workers use, and a one-sentence explanation of each failure."""

from __future__ import annotations

import errno
import http.client
import re
import ssl
from pathlib import Path

from fastllmload._ext.tls.session import tls_library
from fastllmload.errors import InputError
from fastllmload.files import LARGEST_OPTION, regular
from fastllmload.settings import Target

OTHER_NAME, OUT_OF_DATE = (62, 63, 64), (9, 10)  # X509_V_ERR: host, email, address; not yet valid, expired
CLIENT = (
    "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE|UNKNOWN_CA|ALERT_CERTIFICATE|"
    "(BAD|UNSUPPORTED|REVOKED|EXPIRED|UNKNOWN)_CERTIFICATE"
)
VERSION, NO_TLS, NAME = (
    "PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL",
    "WRONG_VERSION_NUMBER|HTTP_REQUEST",
    "UNRECOGNIZED_NAME",
)
AFTER = re.compile(r" \(_ssl\.c:\d+\)$")
GONE = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected)


def tls_context(target: Target, protocol: str) -> ssl.SSLContext:
    """The run's TLS settings, as the workers use them; *protocol*: for ALPN. InputError: a file cannot be used."""
    try:
        tls_library()
    except OSError as problem:
        raise InputError(
            "tls-library-missing",
            f"https needs OpenSSL's libssl, 1.1.1 or later, and {problem}; install it (package libssl3), or use http",
        ) from None
    try:
        check_readable(target.cacert)
        context = ssl.create_default_context(cafile=target.cacert)
    except (OSError, ssl.SSLError) as problem:
        raise InputError(
            "tls-file-invalid", f"--cacert {target.cacert!r} cannot be used: {describe(problem)}"
        ) from None
    context.set_alpn_protocols([protocol])
    if target.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if target.client_cert is not None:
        files = f"--cert {target.client_cert!r} with --key {target.client_key!r}"

        def locked() -> str:
            raise InputError(
                "tls-key-locked",
                f"{files} cannot be used: the key is locked with a pass phrase; unlock a copy of it with "
                "`openssl pkey -in KEY -out COPY`",
            )

        try:
            check_readable(target.client_cert, target.client_key)
            context.load_cert_chain(target.client_cert, target.client_key, locked)
        except (OSError, ssl.SSLError) as problem:
            raise InputError("tls-file-invalid", f"{files} cannot be used: {describe(problem)}") from None
    return context


def check_readable(*files: str | None) -> None:
    """OSError for a file on which OpenSSL would block, or that is too large."""
    for file in files:
        if file is not None and regular(Path(file)) > LARGEST_OPTION:
            raise OSError(errno.EFBIG, f"{file} has more than {LARGEST_OPTION:,} bytes")


def describe(problem: BaseException) -> str:
    """The problem in OpenSSL's or the system's words, without the position in their sources."""
    if isinstance(problem, ssl.SSLError) and problem.reason:
        return problem.reason.lower().replace("_", " ")
    if isinstance(problem, OSError) and problem.strerror:
        return AFTER.sub("", problem.strerror).lower()
    return str(problem) or type(problem).__name__


def no_protocol(problem: BaseException) -> bool:
    """Whether the server refused the handshake because it speaks none of the protocols that were offered (ALPN)."""
    return "no application protocol" in describe(problem)


def trust_advice(verify_code: int) -> str:
    """What to do about OpenSSL's X509_V_ERR_*."""
    if verify_code in OTHER_NAME:
        return "use the name that it is for in --url, give it with --server-name"
    if verify_code in OUT_OF_DATE:
        return "renew it, set this host's clock"
    return "give its issuer with --cacert"


def tls_advice(problem: BaseException, target: Target) -> str | None:
    """What to check when TLS failed, in the handshake or (TLS 1.3) at the first bytes after it; None for another cause."""
    reason = (problem.reason or "") if isinstance(problem, ssl.SSLError) else ""
    mine = (
        "does it want a client certificate (--cert, --key)?"
        if target.client_cert is None
        else "does it accept the certificate of --cert?"
    )
    if re.search(CLIENT, reason):
        return mine
    if re.search(VERSION, reason):
        return "it speaks no version of TLS that this host allows (its OpenSSL's configuration says which)"
    if re.search(NO_TLS, reason):
        return "does this port speak https?"
    if re.search(NAME, reason):
        return "it has no certificate for this name; give another with --server-name"
    if isinstance(problem, GONE):
        return f"does this port speak https, and {mine}"
    return "does this port speak https?" if isinstance(problem, ssl.SSLError) else None
