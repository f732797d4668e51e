# Numbers as text where requests and responses are written: snprintf was a tenth of what a plain request cost in user space.
from libc.stdint cimport int64_t, uint8_t

cdef inline uint8_t* put_number(uint8_t* out, int64_t value) noexcept nogil:
    # Decimal digits of a value that is not negative: 19 at most. Returns the place after them.
    cdef uint8_t[20] digits
    cdef int n = 0
    while True:
        digits[n] = <uint8_t>(48 + value % 10)
        n += 1
        value //= 10
        if value == 0:
            break
    while n:
        n -= 1
        out[0] = digits[n]
        out += 1
    return out
