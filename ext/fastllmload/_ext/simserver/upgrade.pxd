# WebSocket of the simulated engine: the answer to an upgrade, a client's frames, and what is sent in frames besides events.
from libc.stdint cimport uint8_t, uint64_t

from fastllmload._ext.http.request cimport Request

cdef enum ClientStep:
    CLIENT_NEED = 0             # the frame is not there whole
    CLIENT_FRAME = 1
    CLIENT_BAD = 2              # no frame of a client's, or one that is not served here: a part of a message, binary, too large

cdef struct ClientFrame:
    uint8_t opcode
    size_t size                 # of the payload, which lies unmasked at *at*
    uint8_t* at
    size_t whole                # bytes of the frame, as far as they are known

cdef ClientStep client_frame(ClientFrame* f, uint8_t* data, size_t size) noexcept nogil
cdef void client_names(Request* r, const uint8_t* message, size_t size) noexcept nogil      # the request's own name, in its metadata
cdef bytes accepted(Request* r)                             # the head of a 101
cdef bytes frame_of(int opcode, bytes payload)              # a server's
cdef bytes close_of(int code)
# Frames of events in parts of at most *most* bytes, with a ping after each that is not the last of its message.
cdef bytes in_parts(bytes frames, size_t most)
