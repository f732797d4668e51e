# Strict JSON (RFC 8259) over a cursor, one pass, no tree. Every function answers True and moves the cursor
# behind what it read, or answers False: the text is invalid, or it is valid and unusual. False is never a
# verdict, only "ask msgspec".
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from fastllmload._ext.cursor cimport Cursor, left

cdef extern from *:
    """
    #include <endian.h>
    #include <string.h>
    static inline uint64_t fll_load8(const unsigned char *at) {
        uint64_t word;
        memcpy(&word, at, 8);
        return le64toh(word);
    }
    #define fll_lowest_byte(mask) (__builtin_ctzll(mask) >> 3)
    """
    uint64_t fll_load8(const unsigned char* at) noexcept nogil      # the first byte is the lowest
    int fll_lowest_byte(uint64_t mask) noexcept nogil

cdef enum:
    JSON_DEPTH = 64             # containers inside each other; deeper is unusual
    NUMBER_LONGEST = 300        # bytes of a number; longer is unusual

cdef struct Body:               # what stands between the quotes of a string, still escaped; valid UTF-8
    const unsigned char* at     # borrowed from the cursor's buffer; NULL: no string, or null
    size_t size
    uint8_t escaped             # has a backslash

cdef bint json_string(Cursor* c, Body* body) noexcept nogil     # the cursor stands behind the opening quote
cdef bint json_number(Cursor* c) noexcept nogil                 # the cursor stands at its first byte
cdef bint json_skip(Cursor* c, int depth) noexcept nogil        # any value, blanks before it included
cdef bint json_count(Cursor* c, int32_t* value) noexcept nogil  # an integer from 0 to 999,999,999
cdef bint json_digits(Cursor* c, int64_t* value, int most) noexcept nogil   # of at most *most* digits, most <= 18
cdef bint blank_text(const unsigned char* at, size_t size) noexcept nogil   # str.isspace(); size > 0

cdef inline void json_blanks(Cursor* c) noexcept nogil:
    while c.at < c.end and (c.at[0] == c' ' or c.at[0] == c'\n' or c.at[0] == c'\r' or c.at[0] == c'\t'):
        c.at += 1

cdef inline int json_peek(Cursor* c) noexcept nogil:
    # The next byte that is no blank, or -1; the cursor stands at it.
    json_blanks(c)
    return c.at[0] if c.at < c.end else -1

cdef inline bint json_take(Cursor* c, int byte) noexcept nogil:
    if json_peek(c) != byte:
        return False
    c.at += 1
    return True

cdef inline bint json_word(Cursor* c, const char* word, size_t size) noexcept nogil:
    if <size_t>(c.end - c.at) < size or memcmp(c.at, word, size) != 0:
        return False
    c.at += size
    return True

cdef inline uint64_t special(uint64_t word) noexcept nogil:
    # High bit of each special byte. A borrow may mark bytes above one as well: only the lowest mark counts.
    cdef uint64_t ones = <uint64_t>0x0101010101010101ULL
    cdef uint64_t highs = ones << 7
    cdef uint64_t quote = word ^ (ones * 0x22)
    cdef uint64_t backslash = word ^ (ones * 0x5C)
    quote = (quote - ones) & ~quote
    backslash = (backslash - ones) & ~backslash
    return (word | quote | backslash | (word - ones * 0x20)) & highs

cdef inline bint is_special(unsigned char byte) noexcept nogil:
    return byte < 0x20 or byte == c'"' or byte == c'\\' or byte > 127

cdef inline void to_special(Cursor* c) noexcept nogil:
    # Leaves the cursor at the next special byte, or at the end.
    cdef uint64_t word
    while left(c) >= 8:
        word = special(fll_load8(c.at))
        if word:
            c.at += fll_lowest_byte(word)
            return
        c.at += 8
    while c.at < c.end and not is_special(c.at[0]):
        c.at += 1
