# Shared-memory layout of one worker: CONTROL words, COUNTER words, histograms, stalls. All int64, written by one process each.
cdef enum:                 # words
    # Written by the supervisor
    W_COMMAND = 0           # Command
    W_PHASE = 1             # number of the phase to run
    W_START_NS = 2          # CLOCK_MONOTONIC instant of the phase's time zero; 0 = not set
    W_CLOCK_SHIFT = 3       # ns to add to the instants of releases to come: this host's clock against the driver's
    # Written by the worker
    W_STATE = 8             # State
    W_PHASE_DONE = 9        # number of phases finished
    W_HEARTBEAT_NS = 10
    W_RELEASED = 16         # requests dispatched
    W_ENDED = 17
    W_OK = 18
    W_FAILED = 19
    W_IN_FLIGHT = 20
    W_CONNECTIONS = 21      # open sockets
    W_IDLE = 22             # of those, idle
    W_EVENTS = 23
    W_CONTENT_EVENTS = 24
    W_READS = 25
    W_COALESCED = 26        # events that share a read with a later one
    W_KERNEL_STAMPS = 27    # reads with a kernel stamp
    W_USER_STAMPS = 28      # reads without
    W_BYTES_IN = 29
    W_BYTES_OUT = 30
    W_SPIN_NS = 31          # spent spinning before releases
    W_BATCHES = 32
    W_BATCH_MAX_NS = 33     # longest stretch inside one batch
    W_CONNECTS = 34
    W_CONNECT_FAILURES = 35
    W_IDLE_DROPPED = 36     # idle connections that the server closed
    W_LATE_CONNECTS = 37    # releases that found no idle connection
    W_EARLY = 38            # releases more than 1 us before their instant
    W_CLOCK_STEPS = 39      # realtime offset jumped by more than 1 ms
    W_CLAMPED = 40
    W_DISK_FULL = 41
    W_BY_TEMPLATE = 42
    W_BY_SCAN = 43
    W_BY_MSGSPEC = 44
    W_CPU_NS = 45           # process CPU time, sampled a few times a second
    W_RSS_BYTES = 46
    W_GC_RUNS = 47
    W_BACKLOG_MAX = 48      # most releases that were due at one instant
    W_STALLS = 49           # stalls above STALL_NS: neither sockets nor clock were polled meanwhile
    W_STALL_MAX_AT = 50     # the longest stall since the phase's start: CLOCK_MONOTONIC of its begin
    W_STALL_MAX_NS = 51     # and its length; 0 = none above STALL_LEAST_NS
    W_REASONED = 52         # measured responses that began to reason
    W_HANDSHAKES = 53       # of TLS that succeeded
    W_HANDSHAKES_RESUMED = 54                   # of those, continued an earlier session
    W_HANDSHAKE_CPU_NS = 55 # processor time of all, also of those that failed
    W_HANDSHAKE_NS = 57     # time from an established connection to the end of its handshake, of those that succeeded
    W_PAGE_FAULTS = 56      # minor and major, since the phase's first 100 ms
    W_WINDOW_WAITS = 58     # HTTP/2: requests whose body waited for the server's window
    W_WAITING = 59          # requests in flight without a first token, of any kind
    W_UPGRADES = 62         # WebSocket: connections that were upgraded
    W_UPGRADE_NS = 63       # and the time that this took
    W_STATUS0 = 64          # W_STATUS0 + Status: requests ended with it
    W_ERROR0 = 96           # W_ERROR0 + ErrorClass
    W_FAILED_AT0 = 160      # W_FAILED_AT0 + number of the URL, of those from LAST_URL on together: requests that failed there
    LAST_URL = 127
    WORDS = 288

cdef enum LiveHistogram:    # at WORDS + number * HDR_WORDS
    H_TTFT = 0
    H_ITL = 1
    H_E2E = 2
    H_LAG = 3               # t_dispatch - t_sched
    H_SOCKET_TO_USER = 4    # user time of the read - kernel stamp
    H_BEAT = 5              # how late the beat of 5 ms came: what is ready waits so long for its turn
    H_TTFT_ANY = 6          # to the first generated token of any kind
    HISTOGRAMS = 7

cdef enum:                 # after the histograms: the newest stalls, STALL_WORDS each, number W_STALLS % STALL_RING next
    STALL_RING = 8192
    STALL_WORDS = 4         # begin, length; of that ready to run without a processor, and running (ns)
    STALL_NS = 500_000
    STALL_LEAST_NS = 100_000

cdef enum Command:
    RUN = 0
    DRAIN = 1               # send no more, let what is in flight finish
    ABORT = 2               # cancel what is in flight, write, exit

cdef enum State:
    STARTING = 0
    READY = 1               # connected, waiting for W_START_NS
    RUNNING = 2
    DRAINING = 3
    PHASE_ENDED = 4
    FINISHED = 5
    FAILED = 6
