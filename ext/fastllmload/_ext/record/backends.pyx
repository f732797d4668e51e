"""Names of backends as small numbers: a hash table whose memory is there before the clock starts.

A header that has another value in each answer, such as the id of a request, fills it once; what comes then is BACKEND_OTHER.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

cdef enum:
    SLOTS = 8192                # a power of two, above BACKENDS_MOST: a search ends at a free one

MOST, LONGEST, OTHER = BACKENDS_MOST, BACKEND_LONGEST, BACKEND_OTHER


cdef class Backends:
    def __cinit__(self):
        self.names = <BackendName*>calloc(BACKENDS_MOST, sizeof(BackendName))
        self.slots = <uint16_t*>calloc(SLOTS, sizeof(uint16_t))
        if self.names == NULL or self.slots == NULL:
            raise MemoryError("names of backends")

    def __dealloc__(self):
        free(self.names)
        free(self.slots)

    cdef uint16_t number(self, const unsigned char* text, size_t size) noexcept nogil:
        cdef uint32_t hash = 2166136261         # FNV-1a
        cdef uint32_t at
        cdef size_t i
        cdef BackendName* name
        size = min(size, <size_t>BACKEND_LONGEST)
        for i in range(size):
            hash = (hash ^ text[i]) * 16777619
        at = hash % SLOTS
        while self.slots[at]:
            name = self.names + self.slots[at] - 1
            if name.hash == hash and name.size == size and memcmp(name.text, text, size) == 0:
                return self.slots[at]
            at = (at + 1) % SLOTS
        if self.count == BACKENDS_MOST:
            return BACKEND_OTHER
        name = self.names + self.count
        name.hash = hash
        name.size = <uint16_t>size
        memcpy(name.text, text, size)
        self.count += 1
        self.slots[at] = self.count
        return self.count

    def number_of(self, const unsigned char[::1] name not None) -> int:
        return self.number(&name[0], name.shape[0]) if name.shape[0] else 0

    def taken(self, int known=0) -> list:
        """The names after the first *known* ones, in the order of their numbers."""
        return [self.names[i].text[:self.names[i].size] for i in range(known, self.count)]
