"""Responses, sans-IO: bytes of reads to rows and counters."""
