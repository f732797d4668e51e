"""TLS of the simulated engine: its certificate, whom it asks for one, and what is refused before it serves."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from fastllmload._ext.sim.fault import TLS_FAULTS
from fastllmload._ext.tls.session import TlsContext
from fastllmload.errors import InputError
from fastllmload.files import regular
from fastllmload.simulator.own_certificate import own_certificate
from fastllmload.simulator.profile import SimulatorOptions


def tls_context(options: SimulatorOptions) -> TlsContext | None:
    """None: clear text. InputError names the file that cannot be used, or what has no effect without TLS."""
    if options.tls_cert is None and (options.tls_key is not None or not options.secured):
        given = [] if options.tls_key is None else ["--tls-key"]
        given += [] if options.tls_client_ca is None else ["--tls-client-ca"]
        given += [f"--fault {fault}" for fault in options.faults if fault.partition(":")[0] in TLS_FAULTS]
        if given:
            raise InputError(
                "simulator-option-invalid", f"{given[0]} needs a certificate for TLS: give it with --tls-cert"
            )
        return None
    check_files(options.tls_cert, options.tls_key, options.tls_client_ca)
    try:
        return of_files(options)
    except (OSError, ValueError) as problem:  # no library, or one that cannot use what the interpreter's can
        raise InputError("simulator-option-invalid", f"TLS is not possible here: {problem}") from None


def of_files(options: SimulatorOptions) -> TlsContext:
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        if options.tls_cert is None:
            file.write(own_certificate())
            file.flush()
        return TlsContext(
            server=True,
            cert=options.tls_cert or file.name,
            key=options.tls_key,
            cacert=options.tls_client_ca,
            verify=options.tls_client_ca is not None,
            protocols=tuple(filter(None, options.tls_alpn.split(","))),
            resume=True,
        )


def check_files(certificate: str | None, key: str | None, client_ca: str | None) -> None:
    """InputError for files that OpenSSL cannot use, or whose pass phrase it would ask for on the terminal."""

    def locked() -> str:
        raise InputError("tls-key-locked", "the key of --tls-cert is locked with a pass phrase; unlock a copy of it")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    flag, file = "--tls-cert", certificate
    try:
        if certificate is not None:
            regular(Path(certificate))
            if key is not None:
                flag, file = "--tls-key", key
                regular(Path(key))
            context.load_cert_chain(certificate, key, locked)
        if client_ca is not None:
            flag, file = "--tls-client-ca", client_ca
            regular(Path(client_ca))
            context.load_verify_locations(client_ca)
    except OSError as problem:  # ssl.SSLError is one
        why = (problem.strerror or str(problem)).partition(" (_ssl")[0]
        raise InputError("tls-file-invalid", f"{flag} {file!r} cannot be used: {why.lower()}") from None
