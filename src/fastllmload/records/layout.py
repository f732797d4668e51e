"""Defines the row layouts of a run folder as numpy dtypes, and the names of all enumerations in them.

The compiled structs (`recorder.pxd`, `delta.pxd`) are the authority; a test compares every offset and every name. Times
are CLOCK_MONOTONIC ns; 0 means "did not happen".
"""

from __future__ import annotations

import numpy as np

__all__ = [
    "BACKEND_OTHER", "BRACKET_OPEN", "CANCELLED", "CLIENT_ABANDONED", "CLIENT_ABANDONS", "CLIENT_CANCELLED",
    "CLIENT_CANCELS", "CLIENT_NAMES", "CLIENT_SLOW", "CONNECTION_ERROR", "CUT_AFTER_END", "EMPTY", "ERROR_NAMES", "EVENT",
    "EVENT_CONTENT", "EVENT_EMPTY", "EVENT_NAMES", "EVENT_REASONING", "EVENT_REFUSAL", "EVENT_TOOL", "EVENT_WHITESPACE",
    "FINISH_NAMES", "FINISH_OTHER", "FLAG_CLAMPED", "FLAG_DONE", "FLAG_FIRST_COALESCED", "FLAG_LATE_CONNECT",
    "FLAG_REUSED", "FLAG_STREAM", "FLAG_TOOL", "FLAG_USAGE", "HOST_LOST", "HTTP_ERROR", "IN_FLIGHT",
    "MEASURE", "NOT_SENT", "OK", "PHASE_NAMES", "PROBE", "PROTOCOL_ERROR", "RATE_LIMITED", "REFUSED", "REQUEST",
    "STAMP_CLASS_MASK", "STAMP_COALESCED", "STAMP_KERNEL", "STAMP_NAMES", "STAMP_SAME_READ", "STAMP_TAP", "STAMP_USER",
    "STAMP_WITHOUT_TEXT", "STATUS_NAMES", "STREAM_ERROR", "TIMEOUT", "TOKENS_NONE", "TRUNCATED", "WARMUP",
]  # fmt: skip

REQUEST = np.dtype([
    ("t_sched", "<i8"), ("t_dispatch", "<i8"), ("t_submit_start", "<i8"), ("t_submit", "<i8"), ("t_connected", "<i8"),
    ("t_headers", "<i8"), ("t_any", "<i8"), ("t_first", "<i8"), ("t_last", "<i8"), ("t_end", "<i8"),
    ("t_end_user", "<i8"), ("stream_begin", "<u4"), ("head_end", "<u4"), ("retry_after_ms", "<i4"), ("tls_us", "<u4"),
    ("bytes_sent", "<u8"), ("bytes_received", "<u8"), ("text_bytes", "<u8"), ("request", "<u4"), ("session", "<u4"),
    ("input_target", "<u4"), ("output_target", "<u4"), ("prompt_tokens", "<i4"), ("completion_tokens", "<i4"),
    ("reasoning_tokens", "<i4"), ("cached_tokens", "<i4"), ("events", "<u4"), ("content_events", "<u4"),
    ("reasoning_events", "<u4"), ("leading_events", "<u4"), ("coalesced_events", "<u4"), ("reads", "<u4"),
    ("comments", "<u4"), ("error_number", "<i4"), ("local_port", "<u4"), ("http_status", "<u2"),
    ("request_class", "<u2"), ("url", "<u2"), ("worker", "<u2"), ("turn", "<u2"), ("status", "u1"), ("error", "u1"),
    ("finish", "u1"), ("flags", "u1"), ("phase", "u1"), ("stamps", "u1"), ("client", "<u2"), ("backend", "<u2"),
    ("server_total_ns", "<i8"), ("server_load_ns", "<i8"), ("server_prompt_eval_ns", "<i8"), ("server_eval_ns", "<i8"),
    ("t_wire", "<i8"),
])  # fmt: skip

EVENT = np.dtype([
    ("t_ns", "<i8"), ("row", "<u4"), ("kind", "u1"), ("stamp", "u1"), ("tokens", "<u2"), ("bracket_ns", "<u4"),
    ("offset", "<u4"),
])  # fmt: skip

# Position = number in the file.
STATUS_NAMES = (
    "not_sent", "in_flight", "ok", "empty", "refused", "http_error", "rate_limited", "truncated", "timeout",
    "connection_error", "protocol_error", "cancelled", "stream_error", "host_lost",
)  # fmt: skip
ERROR_NAMES = (
    "none", "connect_refused", "connect_timeout", "connect_failed", "no_port", "no_fd", "tls", "send_failed", "reset",
    "reused_connection_lost", "closed_before_response", "closed_in_body", "head_too_large", "bad_head", "bad_chunk",
    "event_too_large", "bad_event", "encoded_body", "unexpected_content_type", "no_done", "event", "http_status",
    "deadline", "drain", "body_too_large", "extra_bytes", "client_cancelled", "client_abandoned", "finish_reason",
    "cut_after_end", "not_http2", "bad_frame", "stream_reset", "stream_refused", "goaway", "window_closed", "header_table",
    "not_upgraded", "close_frame", "grpc_status", "no_grpc_status",
)  # fmt: skip
FINISH_NAMES = ("none", "stop", "length", "tool_calls", "content_filter", "other", "load", "unload", "failed")
EVENT_NAMES = (
    "other", "role", "whitespace", "content", "reasoning", "tool", "refusal", "usage", "finish", "error", "done", "bad",
    "empty",
)  # fmt: skip
PHASE_NAMES = ("warmup", "measure", "probe")
STAMP_NAMES = ("user", "kernel", "coalesced", "tap")

(
    NOT_SENT, IN_FLIGHT, OK, EMPTY, REFUSED, HTTP_ERROR, RATE_LIMITED, TRUNCATED, TIMEOUT, CONNECTION_ERROR, PROTOCOL_ERROR,
    CANCELLED, STREAM_ERROR, HOST_LOST,
) = range(len(STATUS_NAMES))  # fmt: skip

WARMUP, MEASURE, PROBE = range(len(PHASE_NAMES))

EVENT_WHITESPACE, EVENT_CONTENT, EVENT_REASONING, EVENT_TOOL, EVENT_REFUSAL, EVENT_EMPTY = map(
    EVENT_NAMES.index, ("whitespace", "content", "reasoning", "tool", "refusal", "empty")
)
FINISH_OTHER = FINISH_NAMES.index("other")
CUT_AFTER_END, CLIENT_CANCELLED, CLIENT_ABANDONED = map(
    ERROR_NAMES.index, ("cut_after_end", "client_cancelled", "client_abandoned")
)
# Bits of a row's `client`: the simulated behavior of its user other than waiting.
CLIENT_NAMES = ("cancels", "abandons", "slow_reader")
CLIENT_CANCELS, CLIENT_ABANDONS, CLIENT_SLOW = 1, 2, 4

FLAG_REUSED, FLAG_DONE, FLAG_TOOL, FLAG_USAGE = 1, 2, 4, 8
FLAG_FIRST_COALESCED, FLAG_CLAMPED, FLAG_STREAM, FLAG_LATE_CONNECT = 16, 32, 64, 128

BACKEND_OTHER = 0xFFFF  # backend of a request whose answer named one when its worker had no room for another name

STAMP_USER, STAMP_KERNEL, STAMP_COALESCED, STAMP_TAP = range(len(STAMP_NAMES))
BRACKET_OPEN = 0xFFFFFFFF  # of an event that came after the submission of its request, where no closer bound is known
STAMP_CLASS_MASK = 3  # of the stamp byte of an event
STAMP_SAME_READ = 4  # this event came in the same read as the request's previous one
STAMP_WITHOUT_TEXT = 8  # the event carries tokens, but no text
TOKENS_NONE = 0xFFFF  # tokens of an event that completes none, as reported by the server
