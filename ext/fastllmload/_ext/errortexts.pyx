"""Texts of failed responses.

Theory of operation. Rows say that a request failed and in which class; why, only the server's own words tell. The first
MOST distinct ones are kept as they came, cut to LONGEST bytes, and counted; of all others only the number is. Failures
are rare or all alike, so a dict does; a request that succeeds never comes here.
"""

cdef enum:
    MOST = 32           # distinct texts
    LONGEST = 4096      # bytes of one: more than is shown, so that a secret at the cut can be blanked before it is cut again


cdef class ErrorTexts:
    """Counts by (HTTP status, error class of recorder.Error, first bytes of the text)."""

    def __cinit__(self):
        self.kept = {}

    cdef int note(self, uint16_t http_status, uint8_t error, const unsigned char* text, size_t size) except -1:
        cdef tuple key
        if size == 0:
            return 0
        key = (http_status, error, text[:min(size, <size_t>LONGEST)])
        if key in self.kept:
            self.kept[key] += 1
        elif len(self.kept) < MOST:
            self.kept[key] = 1
            self.versions += 1
        else:
            self.left_out += 1
        return 0

    def taken(self) -> list:
        """(HTTP status, error class, text, requests) of each, in the order in which they came."""
        return [(*key, count) for key, count in self.kept.items()]
