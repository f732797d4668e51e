"""Texts of failed responses.

Theory of operation. Rows say that a request failed and in which class; why, only the server's own words tell. The first
MOST distinct ones are kept as they came, cut to LONGEST bytes, and counted; of all others only the number is. Failures
are rare or all alike, so a dict does; a request that succeeds never comes here.
"""

from fastllmload._ext.bytes.cursor cimport Cursor, over
from fastllmload._ext.bytes.jsonfind cimport json_item, json_member
from fastllmload._ext.record.recorder cimport ERROR_NONE

cdef enum:
    MOST = 32           # distinct texts
    WORDS_MOST = 8      # distinct finish_reasons that are not known
    LONGEST = 4096      # bytes of one: more than is shown, so that a secret at the cut can be blanked before it is cut again


cdef bint find_reason(Cursor* event, Cursor* word) noexcept nogil:
    """The string of the first choice that has one, or of Ollama's own field."""
    cdef Cursor choices
    cdef Cursor choice
    cdef bint first = True
    if not json_member(event, b"choices", 7, &choices):
        return False
    while choices.at != NULL and json_item(&choices, first, &choice) == 1:
        first = False
        if json_member(&choice, b"finish_reason", 13, word) and is_string(word):
            return True
    return json_member(event, b"done_reason", 11, word) and is_string(word)


cdef inline bint is_string(Cursor* value) noexcept nogil:
    return value.at != NULL and value.at[0] == c'"'


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
        elif error == ERROR_NONE:
            if self.words < WORDS_MOST:
                self.kept[key] = 1
                self.words += 1
                self.versions += 1
        elif len(self.kept) - self.words < MOST:
            self.kept[key] = 1
            self.versions += 1
        else:
            self.left_out += 1
        return 0

    cdef int note_reason(self, uint16_t http_status, uint8_t error, const unsigned char* data, size_t size) except -1:
        cdef Cursor event
        cdef Cursor word
        cdef bytes text
        over(&event, data, size)
        if not find_reason(&event, &word):
            return self.note(http_status, error, data, size)
        text = b"finish_reason: " + word.at[1:word.end - word.at - 1]
        return self.note(http_status, error, text, <size_t>len(text))

    def taken(self) -> list:
        """(HTTP status, error class, text, requests) of each, in the order in which they came."""
        return [(*key, count) for key, count in self.kept.items()]
