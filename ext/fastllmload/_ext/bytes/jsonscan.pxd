# Strict JSON (RFC 8259) over a cursor, one pass, no tree. Every function answers True and moves the cursor
# after what it read, or answers False: the text is invalid, or it is valid and unusual. False is never a
# verdict, only "ask msgspec".
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from fastllmload._ext.bytes.cursor cimport Cursor, left

cdef extern from *:
    """
    #ifdef __SSE2__
    #include <emmintrin.h>
    #endif
    /* Bit n: byte n of 16 is below 0x20, above 127, *a* or *b*. */
    static inline uint32_t fll_marked16(const unsigned char *at, char a, char b) {
    #ifdef __SSE2__
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
        __m128i marked = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));    /* signed: above 127 is below as well */
        marked = _mm_or_si128(marked, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(a)));
        marked = _mm_or_si128(marked, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b)));
        return (uint32_t)_mm_movemask_epi8(marked);
    #else
        uint32_t marked = 0;
        for (int i = 0; i < 16; i++)
            marked |= (uint32_t)(at[i] < 0x20 || at[i] > 127 || at[i] == (unsigned char)a || at[i] == (unsigned char)b) << i;
        return marked;
    #endif
    }
    #define fll_lowest_bit(mask) __builtin_ctz(mask)
    """
    uint32_t fll_marked16(const unsigned char* at, char a, char b) noexcept nogil
    int fll_lowest_bit(uint32_t mask) noexcept nogil

cdef enum:
    JSON_DEPTH = 64             # containers inside each other; deeper is unusual
    NUMBER_LONGEST = 300        # bytes of a number; longer is unusual

cdef struct StringSpan:         # what is between the quotes of a string, still escaped; valid UTF-8
    const unsigned char* at     # borrowed from the cursor's buffer; NULL: no string, or null
    size_t size
    uint8_t escaped             # has a backslash

cdef bint json_string(Cursor* c, StringSpan* body) noexcept nogil     # the cursor is after the opening quote
cdef bint json_number(Cursor* c) noexcept nogil                 # the cursor stands at its first byte
cdef bint json_skip(Cursor* c, int depth) noexcept nogil        # any value, blanks before it included
cdef bint json_count(Cursor* c, int32_t* value) noexcept nogil  # an integer from 0 to 999,999,999
cdef bint json_digits(Cursor* c, int64_t* value, int most) noexcept nogil   # of at most *most* digits, most <= 18
cdef bint blank_text(const unsigned char* at, size_t size) noexcept nogil   # str.isspace(); size > 0

cdef inline void json_blanks(Cursor* c) noexcept nogil:
    while c.at < c.end and c.at[0] <= c' ' and (c.at[0] == c' ' or c.at[0] == c'\n' or c.at[0] == c'\r' or c.at[0] == c'\t'):
        c.at += 1

cdef inline int json_peek(Cursor* c) noexcept nogil:
    # The next byte that is not a blank, or -1; the cursor is at it.
    json_blanks(c)
    return c.at[0] if c.at < c.end else -1

cdef inline bint json_take(Cursor* c, int byte) noexcept nogil:
    if json_peek(c) != byte:
        return False
    c.at += 1
    return True

cdef inline bint json_short(Cursor* c) noexcept nogil:
    # An integer of at most nine digits that another byte follows. False: nothing is read.
    cdef const unsigned char* at = c.at
    while at < c.end and c'0' <= at[0] <= c'9':
        at += 1
    if at == c.at or at == c.end or c.at[0] == c'0' or at - c.at > 9 or at[0] == c'.' or at[0] | 0x20 == c'e':
        return False
    c.at = at
    return True

cdef inline bint json_word(Cursor* c, const char* word, size_t size) noexcept nogil:
    if <size_t>(c.end - c.at) < size or memcmp(c.at, word, size) != 0:
        return False
    c.at += size
    return True

cdef inline bint is_special(unsigned char byte) noexcept nogil:
    return byte < 0x20 or byte == c'"' or byte == c'\\' or byte > 127

cdef inline void to_special(Cursor* c) noexcept nogil:
    # Leaves the cursor at the next special byte, or at the end.
    cdef uint32_t marked
    while left(c) >= 16:
        marked = fll_marked16(c.at, c'"', c'\\')
        if marked:
            c.at += fll_lowest_bit(marked)
            return
        c.at += 16
    while c.at < c.end and not is_special(c.at[0]):
        c.at += 1
