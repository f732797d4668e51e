# What names the session of a request on the wire: header lines, and first fields of its JSON, from compiled templates.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from fastllmload._ext.send.connection cimport RequestStream

cdef enum Part:             # of a template
    PART_TEXT = 0
    PART_SESSION = 1        # <run>-<phase>-s<session>, and -<chain> for an agent with an identity of its own
    PART_PARENT = 2         # that of the agent which started this one; a template with it is left out where there is none
    PART_ROOT = 3           # that of the session's main agent
    PART_TURN = 4
    PART_CLASS = 5          # a class's name; in JSON: escaped
    PART_USER = 6           # <run>-<phase>-u<number>
    PART_FINAL = 7          # true; a template with it is left out but in the last request of a session
    PART_REQUEST = 8        # as in X-Fastllmload-Request
    PART_TOKEN = 9          # what the server's latest answer in the session said; left out before there was one

cdef struct Piece:
    uint32_t part           # Part
    uint32_t at             # PART_TEXT: where in Identity.text; PART_CLASS: of class 0 in Identity.classes
    uint32_t size

cdef struct Template:
    Piece name              # header: "Name: "
    Piece block             # header: the same for HTTP/2, with its size before it
    uint32_t first          # of its pieces
    uint32_t count
    uint8_t of_children     # left out where the agent has no parent
    uint8_t of_last         # left out but in the last request
    uint8_t of_token        # left out before there was one

cdef struct Who:            # the request that is composed
    uint32_t request
    uint32_t session
    int32_t chain           # agent within the session; 0: the main one
    int32_t parent          # chain of the agent that started it; -1: none
    uint32_t turn           # of the chain
    uint32_t of_class
    int64_t user            # -1: the session is one
    uint8_t last            # of its chain

cdef class Identity:
    cdef bytes literals                 # keeps *text* alive
    cdef const uint8_t* text
    cdef Piece* pieces                  # owned
    cdef Template* templates            # headers, then fields of the body; owned
    cdef uint32_t header_count, field_count         # after these the template of what ends a session
    cdef Piece* classes                 # names for headers, then for JSON; owned
    cdef uint32_t class_count
    cdef size_t longest_class
    cdef size_t most                    # bytes that all templates are at most, without a token
    cdef bint own_children              # other agents of a session have an identity of their own
    cdef dict named                     # session -> agents that were named and have not ended; where ends are sent
    cdef dict tokens                    # (session, chain) -> the latest token, as it is sent; None: none is sent
    cdef bint from_body                 # answers have tokens in JSON
    cdef bint in_body                   # and requests
    cdef Who who                        # set by the caller before begin()
    cdef bytes token
    cdef bytearray unsent               # lines for *ends_fd* that it has not taken
    cdef int ends_fd                    # gets a line for each session that has ended; borrowed, -1: none
    cdef const char* prefix             # "<run>-<phase>-"; borrowed
    cdef size_t prefix_size
    cdef int begin_phase(self, const char* prefix, size_t size) except -1       # ids of earlier phases are forgotten
    # A request's own lines: where they go, with room for the templates and *room* bytes more.
    cdef uint8_t* begin(self, RequestStream* s, size_t room) except NULL
    cdef uint8_t* put_lines(self, uint8_t* at) noexcept         # of HTTP/1.1
    cdef uint8_t* put_fields(self, uint8_t* at) noexcept        # of HTTP/2
    cdef uint8_t* put_opening(self, uint8_t* at) noexcept       # the body's bracket and first fields; nothing where there are none
    # The answer to a request has come, with a *token* or none: *goes_on*: another turn of its chain follows.
    cdef int answered(self, const unsigned char* token, size_t size, bint goes_on) except -1
    cdef int over(self, uint32_t target) except -1              # the session of *who* has ended
    cdef int chain_over(self, uint32_t target, bint all_of_them) except -1      # or its agent, or each agent that was named
    cdef int name_chain(self) except -1                         # *who* is an agent of a session with several
    cdef int tell(self) except -1                               # what is unsent, as far as it is taken
    cdef int tell_all(self) except -1                           # between phases: all of it, within some seconds
    cdef bint _left_out(self, const Template* t) noexcept
    cdef uint8_t* _put(self, uint8_t* at, const Template* t) noexcept
    cdef uint8_t* _put_session(self, uint8_t* at, int32_t chain) noexcept
    cdef Piece _keep(self, bytes text, uint32_t part=*)
