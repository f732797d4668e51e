"""A cadence in virtual time: arrivals in, tokens out, no socket and no clock. Shows what an engine does, exactly."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from fastllmload._ext.sim.cadence cimport Cadence
from fastllmload._ext.sim.sequence cimport Sequence
from fastllmload._ext.sim.timer cimport NEVER


cdef class Trial:
    """Runs *cadence* over arrivals that are added in order of their instants.

    `tokens` is a list of (instant in ns, serial, tokens released so far), in the order in which a server writes them.
    """

    cdef Cadence cadence
    cdef Sequence* sequences        # owned; fixed in size, as the cadence keeps pointers
    cdef uint32_t count, cap
    cdef readonly list tokens

    def __init__(self, cadence: Cadence, capacity: int = 1024):
        self.cadence = cadence
        self.sequences = <Sequence*>calloc(capacity, sizeof(Sequence))
        if self.sequences == NULL:
            raise MemoryError(f"no memory for {capacity} sequences")
        self.cap = capacity
        self.tokens = []

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.count):
            free(self.sequences[i].hashes)
            free(self.sequences[i].nodes)
        free(self.sequences)

    def arrive(self, now: int, prompt_tokens: int, output_tokens: int, priority: int = 0, hashes: tuple[int, ...] = (),
               whole: bool = False) -> int:
        """A request whose last byte came at *now*; returns its serial. What was due before happens first."""
        cdef Sequence* s
        cdef uint32_t i
        self.run_until(now - 1)
        if self.count == self.cap:
            raise IndexError(f"a trial of {self.cap} requests is full")
        s = &self.sequences[self.count]
        s.serial = self.count
        s.prompt_tokens, s.output_tokens = prompt_tokens, output_tokens
        s.priority, s.whole, s.t_arrival = priority, whole, now
        s.hash_count = s.hash_cap = len(hashes)
        s.hashes = <uint64_t*>calloc(len(hashes) + 1, sizeof(uint64_t))
        s.nodes = <int32_t*>calloc(len(hashes) + 1, sizeof(int32_t))
        for i in range(s.hash_count):
            s.hashes[i] = hashes[i]
        self.count += 1
        self.cadence.submit(s, now)
        return s.serial

    cdef Sequence* at(self, int64_t serial) except NULL:
        if not 0 <= serial < self.count:
            raise IndexError(f"request {serial} of {self.count} does not exist")
        return &self.sequences[serial]

    def abort(self, serial: int) -> None:
        self.cadence.abort(self.at(serial))

    def run_until(self, until: int) -> None:
        """Lets everything happen that is due up to *until*."""
        cdef size_t i
        cdef int64_t due = self.cadence.due()
        while due <= until:
            self.cadence.advance(due)
            for i in range(self.cadence.ready_count):
                self.tokens.append((due, self.cadence.ready[i].serial, self.cadence.ready[i].produced))
            due = self.cadence.due()

    def run(self) -> list[tuple[int, int, int]]:
        """Until nothing is due any more; returns `tokens`."""
        self.run_until(NEVER - 1)
        return self.tokens

    def sequence(self, serial: int) -> dict[str, int]:
        cdef Sequence* s = self.at(serial)
        return {"cached_tokens": s.cached_tokens, "preemptions": s.preemptions, "t_admitted": s.t_admitted,
                "t_first": s.t_first, "produced": s.produced, "delivered": s.delivered, "blocks": s.blocks}

    @property
    def running(self) -> int:
        return self.cadence.running()

    @property
    def waiting(self) -> int:
        return self.cadence.waiting()
