"""TLS on memory, by OpenSSL's C functions."""
