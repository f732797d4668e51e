"""Many request bodies into one buffer, without a Python object per token.

Every word is copied as 16 bytes whatever its length, and the next word overwrites the surplus: a fixed-size copy is two
instructions, a variable one is a call. That is why the blob has spare bytes at its end, and why `room()` asks for more
than the bodies take.
"""

cimport cython
from libc.string cimport memcpy


cdef class Stitcher:
    """Word tables and body pieces, checked once; `stitch()` then trusts them.

    *blob*: uint8, the bytes of all words and 64 spare bytes. *words*, *first*: uint32, `offset << 8 | length` per drawn
    number; *first* serves the first word of each prompt. *pieces*: the number of output tokens stands between them.
    ValueError when a table points outside of the blob.
    """

    def __init__(self, blob, words, first, bytes before, pieces):
        self._keep = (blob, words, first)
        self.blob = blob
        self.words = words
        self.first = first
        self.before = before
        self.pieces = [bytes(piece) for piece in pieces]
        if not self.pieces:
            raise ValueError("pieces: at least one, the bytes after the prompt")
        self.longest = 0
        self._check(self.words)
        self._check(self.first)
        if self.words.shape[0] != self.first.shape[0]:
            raise ValueError("words and first must have the same length")
        self.fixed = len(before) + sum(map(len, self.pieces)) + NUMBER_MAX * (len(self.pieces) - 1)

    cdef int _check(self, const uint32_t[::1] table) except -1:
        cdef Py_ssize_t i
        cdef uint32_t size
        if table.shape[0] == 0:
            raise ValueError("a word table must not be empty")
        for i in range(table.shape[0]):
            size = table[i] & 0xff
            if size == 0 or size > WORD_MAX or <Py_ssize_t>(table[i] >> 8) + size + WORD_MAX > self.blob.shape[0]:
                raise ValueError(f"word {i} is empty, too long or outside of the blob")
            if size > self.longest:
                self.longest = size
        return 0

    def room(self, Py_ssize_t words, Py_ssize_t bodies):
        """Most bytes that `stitch` needs for that many words in that many bodies."""
        return words * self.longest + bodies * self.fixed + WORD_MAX

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def stitch(self, const uint32_t[::1] drawn, const int32_t[::1] prompt, const int32_t[::1] output,
               uint8_t[::1] out, uint64_t[::1] ends):
        """Write one body per entry of *prompt* (its words) and *output* (its output tokens) into *out*.

        *drawn* holds the prompts' numbers one after the other. *ends[i]* becomes the offset in *out* after body i.
        Returns the bytes written. ValueError when sizes do not fit together, IndexError for a number beyond the table.
        """
        cdef Py_ssize_t bodies = prompt.shape[0]
        cdef Py_ssize_t i, j, stop, at = 0
        cdef uint32_t word, size
        cdef uint32_t highest = 0
        cdef uint8_t* to = &out[0]
        cdef const uint8_t* blob = &self.blob[0]
        cdef const char* before = self.before
        cdef size_t before_size = <size_t>len(self.before)
        if output.shape[0] != bodies or ends.shape[0] != bodies:
            raise ValueError("prompt, output and ends must have one entry per body")
        if out.shape[0] < self.room(drawn.shape[0], bodies):
            raise ValueError(f"out holds {out.shape[0]} bytes, {self.room(drawn.shape[0], bodies)} are needed")
        for i in range(drawn.shape[0]):
            highest = max(highest, drawn[i])
        if highest >= <size_t>self.words.shape[0]:
            raise IndexError(f"drawn number {highest} is beyond a table of {self.words.shape[0]}")
        for i in range(bodies):
            stop = at + prompt[i]
            if prompt[i] < 1 or stop > drawn.shape[0]:
                raise ValueError(f"body {i} has {prompt[i]} words, {drawn.shape[0] - at} are left")
            memcpy(to, before, before_size)
            to += before_size
            for j in range(at, stop):
                word = self.first[drawn[j]] if j == at else self.words[drawn[j]]
                size = word & 0xff
                memcpy(to, blob + (word >> 8), 16)
                if size > 16:
                    memcpy(to + 16, blob + (word >> 8) + 16, WORD_MAX - 16)
                to += size
            at = stop
            to = self._tail(to, output[i])
            ends[i] = <uint64_t>(to - &out[0])
        if at != drawn.shape[0]:
            raise ValueError(f"{drawn.shape[0] - at} drawn numbers belong to no body")
        return to - &out[0]

    cdef uint8_t* _tail(self, uint8_t* at, int32_t number) except NULL:
        cdef bytes digits = b"%d" % number
        cdef bytes piece
        cdef Py_ssize_t k
        for k in range(len(self.pieces)):
            if k:
                memcpy(at, <const char*>digits, <size_t>len(digits))
                at += len(digits)
            piece = self.pieces[k]
            memcpy(at, <const char*>piece, <size_t>len(piece))
            at += len(piece)
        return at
