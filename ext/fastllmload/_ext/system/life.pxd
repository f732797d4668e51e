# How many of what has a life cycle were begun and have ended in this process. Tests compare the two; nothing else reads them.
cpdef enum Life:
    LIFE_CONNECTION = 0     # made; dropped
    LIFE_REQUEST = 1        # its exchange was opened; has ended
    LIFE_IN_FLIGHT = 2      # dispatched; its end was handled
    LIFE_CONVERSATION = 3
    LIFE_BUFFER = 4         # of bytes carried over from read to read
    LIVES = 5

cdef void life_begins(int life) noexcept nogil
cdef void life_ends(int life) noexcept nogil
