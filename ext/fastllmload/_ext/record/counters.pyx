"""Layout of a worker's shared memory for Python callers: every name of counters.pxd as an int, and the total size."""

from fastllmload._ext.record.histogram cimport HDR_WORDS

# A C enumeration has no Python names of its own; a test compares this table with counters.pxd.
NUMBERS = {
    "W_COMMAND": <int>W_COMMAND,
    "W_PHASE": <int>W_PHASE,
    "W_START_NS": <int>W_START_NS,
    "W_CLOCK_SHIFT": <int>W_CLOCK_SHIFT,
    "W_STATE": <int>W_STATE,
    "W_PHASE_DONE": <int>W_PHASE_DONE,
    "W_HEARTBEAT_NS": <int>W_HEARTBEAT_NS,
    "W_RELEASED": <int>W_RELEASED,
    "W_ENDED": <int>W_ENDED,
    "W_OK": <int>W_OK,
    "W_FAILED": <int>W_FAILED,
    "W_IN_FLIGHT": <int>W_IN_FLIGHT,
    "W_CONNECTIONS": <int>W_CONNECTIONS,
    "W_IDLE": <int>W_IDLE,
    "W_EVENTS": <int>W_EVENTS,
    "W_CONTENT_EVENTS": <int>W_CONTENT_EVENTS,
    "W_READS": <int>W_READS,
    "W_COALESCED": <int>W_COALESCED,
    "W_KERNEL_STAMPS": <int>W_KERNEL_STAMPS,
    "W_USER_STAMPS": <int>W_USER_STAMPS,
    "W_BYTES_IN": <int>W_BYTES_IN,
    "W_BYTES_OUT": <int>W_BYTES_OUT,
    "W_SPIN_NS": <int>W_SPIN_NS,
    "W_BATCHES": <int>W_BATCHES,
    "W_BATCH_MAX_NS": <int>W_BATCH_MAX_NS,
    "W_CONNECTS": <int>W_CONNECTS,
    "W_CONNECT_FAILURES": <int>W_CONNECT_FAILURES,
    "W_IDLE_DROPPED": <int>W_IDLE_DROPPED,
    "W_LATE_CONNECTS": <int>W_LATE_CONNECTS,
    "W_EARLY": <int>W_EARLY,
    "W_CLOCK_STEPS": <int>W_CLOCK_STEPS,
    "W_CLAMPED": <int>W_CLAMPED,
    "W_DISK_FULL": <int>W_DISK_FULL,
    "W_BY_TEMPLATE": <int>W_BY_TEMPLATE,
    "W_BY_SCAN": <int>W_BY_SCAN,
    "W_BY_MSGSPEC": <int>W_BY_MSGSPEC,
    "W_CPU_NS": <int>W_CPU_NS,
    "W_RSS_BYTES": <int>W_RSS_BYTES,
    "W_GC_RUNS": <int>W_GC_RUNS,
    "W_BACKLOG_MAX": <int>W_BACKLOG_MAX,
    "W_STALLS": <int>W_STALLS,
    "W_STALL_MAX_AT": <int>W_STALL_MAX_AT,
    "W_STALL_MAX_NS": <int>W_STALL_MAX_NS,
    "W_REASONED": <int>W_REASONED,
    "W_HANDSHAKES": <int>W_HANDSHAKES,
    "W_HANDSHAKES_RESUMED": <int>W_HANDSHAKES_RESUMED,
    "W_HANDSHAKE_CPU_NS": <int>W_HANDSHAKE_CPU_NS,
    "W_PAGE_FAULTS": <int>W_PAGE_FAULTS,
    "W_HANDSHAKE_NS": <int>W_HANDSHAKE_NS,
    "W_WINDOW_WAITS": <int>W_WINDOW_WAITS,
    "W_WAITING": <int>W_WAITING,
    "W_UPGRADES": <int>W_UPGRADES,
    "W_UPGRADE_NS": <int>W_UPGRADE_NS,
    "W_STATUS0": <int>W_STATUS0,
    "W_ERROR0": <int>W_ERROR0,
    "W_FAILED_AT0": <int>W_FAILED_AT0,
    "LAST_URL": <int>LAST_URL,
    "WORDS": <int>WORDS,
    "H_TTFT": <int>H_TTFT,
    "H_ITL": <int>H_ITL,
    "H_E2E": <int>H_E2E,
    "H_LAG": <int>H_LAG,
    "H_SOCKET_TO_USER": <int>H_SOCKET_TO_USER,
    "H_BEAT": <int>H_BEAT,
    "H_TTFT_ANY": <int>H_TTFT_ANY,
    "HISTOGRAMS": <int>HISTOGRAMS,
    "STALL_RING": <int>STALL_RING,
    "STALL_WORDS": <int>STALL_WORDS,
    "STALL_NS": <int>STALL_NS,
    "STALL_LEAST_NS": <int>STALL_LEAST_NS,
    "RUN": <int>RUN,
    "DRAIN": <int>DRAIN,
    "ABORT": <int>ABORT,
    "STARTING": <int>STARTING,
    "READY": <int>READY,
    "RUNNING": <int>RUNNING,
    "DRAINING": <int>DRAINING,
    "PHASE_ENDED": <int>PHASE_ENDED,
    "FINISHED": <int>FINISHED,
    "FAILED": <int>FAILED,
}
globals().update(NUMBERS)

# int64 words of one worker's shared memory: WORDS words, HISTOGRAMS histograms, then STALL_RING stalls.
STALLS_START = <int>WORDS + <int>HISTOGRAMS * <int>HDR_WORDS
TOTAL_WORDS = STALLS_START + <int>STALL_WORDS * <int>STALL_RING


def histogram_start(int number) -> int:
    """Index of the first word of histogram *number* (H_TTFT ...). Raises IndexError for a number out of range."""
    if not 0 <= number < <int>HISTOGRAMS:
        raise IndexError(f"histogram {number} does not exist; there are {<int>HISTOGRAMS}")
    return <int>WORDS + number * <int>HDR_WORDS
