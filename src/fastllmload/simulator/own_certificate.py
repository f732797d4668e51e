"""A certificate that signs itself, made by the OpenSSL that is loaded: for `--tls` without files."""

from __future__ import annotations

import ctypes

from fastllmload._ext.tls.session import tls_library

# Numbers of OpenSSL's headers
EVP_PKEY_EC, NID_X9_62_PRIME256V1, NID_SUBJECT_ALT_NAME, MBSTRING_ASC, BIO_CTRL_INFO = 408, 415, 85, 0x1001, 3
HOUR_S, DAYS = 3600, 30


def own_certificate(names: str = "DNS:localhost,IP:127.0.0.1,IP:::1") -> bytes:
    """PEM of a new EC key and of its certificate for *names* (as in subjectAltName), valid for DAYS. OSError: it fails."""
    library = ctypes.CDLL(tls_library())

    def call(name: str, *arguments: int | bytes | None) -> int:
        """Every argument in a whole register, which C functions of int and long take as well."""
        function = getattr(library, name)
        function.restype = ctypes.c_void_p
        found = function(*(one if isinstance(one, bytes) else ctypes.c_void_p(one) for one in arguments))
        if not found:
            raise OSError(f"OpenSSL's {name} failed")
        return int(found)

    curve = call("EC_KEY_new_by_curve_name", NID_X9_62_PRIME256V1)
    call("EC_KEY_generate_key", curve)
    key, made = call("EVP_PKEY_new"), call("X509_new")
    call("EVP_PKEY_assign", key, EVP_PKEY_EC, curve)
    call("X509_set_version", made, 2)
    call("ASN1_INTEGER_set", call("X509_get_serialNumber", made), 1)
    call("X509_gmtime_adj", call("X509_getm_notBefore", made), -HOUR_S)
    call("X509_gmtime_adj", call("X509_getm_notAfter", made), DAYS * 24 * HOUR_S)
    call("X509_set_pubkey", made, key)
    subject = call("X509_get_subject_name", made)
    call("X509_NAME_add_entry_by_txt", subject, b"CN", MBSTRING_ASC, b"fastllmload simulate", -1, -1, 0)
    call("X509_set_issuer_name", made, subject)
    call("X509_add_ext", made, call("X509V3_EXT_conf_nid", None, None, NID_SUBJECT_ALT_NAME, names.encode()), -1)
    call("X509_sign", made, key, call("EVP_sha256"))
    pem, text = call("BIO_new", call("BIO_s_mem")), ctypes.c_char_p()
    call("PEM_write_bio_X509", pem, made)
    call("PEM_write_bio_PrivateKey", pem, key, None, None, 0, None, None)
    size = call("BIO_ctrl", pem, BIO_CTRL_INFO, 0, ctypes.addressof(text))
    found = ctypes.string_at(text, size)
    for free, one in (("BIO_free", pem), ("X509_free", made), ("EVP_PKEY_free", key)):
        getattr(library, free)(ctypes.c_void_p(one))
    return found
