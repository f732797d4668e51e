"""Heads of HTTP/2 responses.

The peer has to keep no table of fields (SETTINGS_HEADER_TABLE_SIZE 0). So a block depends on no earlier one, equal heads are
mostly equal bytes, and what a block says is found by comparison; a new one is decoded by the library hpack.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from urllib.parse import unquote_to_bytes

from hpack import Decoder, HPACKError, InvalidTableIndexError, InvalidTableSizeError, OversizedHeaderListError

from fastllmload._ext.bytes.cursor cimport Cursor, left, over
from fastllmload._ext.http.fieldvalue cimport digits, is_word, trim
from fastllmload._ext.http.headlike cimport WANTED, wanted_clear
from fastllmload._ext.http.response cimport CONTENT_OTHER, content_kind, milliseconds

# Fields of one connection, which HTTP/2 forbids (RFC 9113 8.2.2).
FORBIDDEN = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
BLOCK_ERRORS = ("ok", "malformed", "table", "too_large")


def request_block(bytes head not None, bint tls=False) -> bytes:
    """The fields of a request's head, given as in HTTP/1.1: request line and fields, each ended by CRLF.

    All are literals that no table takes up, so that one block serves every connection; its first byte says that none is used.
    """
    request, *lines = head.split(b"\r\n")[:-1]
    method, path, _ = request.split(b" ", 2)
    fields = [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    authority = b"".join(value for name, value in fields if name == b"host")
    out = b"\x20" + (b"\x83" if method == b"POST" else b"\x02" + sized(method)) + (b"\x87" if tls else b"\x86")
    out += b"\x04" + sized(path) + b"\x01" + sized(authority)
    return out + b"".join(b"\x10" + sized(name) + sized(value) for name, value in fields if name != b"host")


def response_block(bytes head not None) -> bytes:
    """The same of a response's head: status line and fields, each ended by CRLF."""
    line, *lines = head.rstrip(b"\r\n").split(b"\r\n")
    status = line.split(b" ")[1]
    fields = [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    out = b"\x20" + (b"\x88" if status == b"200" else b"\x08" + sized(status))
    return out + b"".join(b"\x10" + sized(name) + sized(value) for name, value in fields)


def sized(bytes text) -> bytes:
    """A string with its size before it (RFC 7541 5.1, 5.2)."""
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    size -= 127
    out = bytearray((127,))
    while size >= 128:
        out.append(size % 128 | 128)
        size //= 128
    out.append(size)
    return bytes(out) + text


cdef class BlockReader:
    """``read_bytes(block)`` returns the position of the verdict in BLOCK_ERRORS; it never raises for any bytes."""

    def __cinit__(self):
        decoder = Decoder()
        decoder.header_table_size = decoder.max_allowed_table_size = 0
        self.decode = decoder.decode
        self.names = []
        self.kept_values = {}
        self.kept = <KeptBlock*>calloc(BLOCKS_KEPT, sizeof(KeptBlock))
        if self.kept == NULL:
            raise MemoryError("heads of responses")

    def __dealloc__(self):
        free(self.kept)

    cdef BlockError read(self, const unsigned char* block, size_t size, bint trailers=False) except *:
        cdef int i, at
        cdef BlockError error
        self.message = b""
        for i in range(BLOCKS_KEPT):
            at = (self.liked + i) % BLOCKS_KEPT
            if self.kept[at].size == size and size > 0 and memcmp(self.kept[at].bytes, block, size) == 0:
                self.liked = at
                self.by_equality += 1
                self.said = self.kept[at].said
                if self.wanted.count:
                    self._note(self.kept_values[at])
                return BLOCK_OK if trailers == (self.said.status == 0) else BLOCK_MALFORMED
        error = self._decode(block, size)
        if error == BLOCK_OK and trailers != (self.said.status == 0):
            error = BLOCK_MALFORMED
        if error == BLOCK_OK and size <= BLOCK_LONGEST and not self.message:        # few failures are alike
            self.liked = self.next
            self.next = (self.next + 1) % BLOCKS_KEPT
            self.kept[self.liked].size = size
            self.kept[self.liked].said = self.said
            memcpy(self.kept[self.liked].bytes, block, size)
            self.kept_values[self.liked] = self.values
        return error

    cdef int want(self, list names) except -1:
        if len(names) > WANTED:
            raise ValueError(f"{len(names)} fields of heads are wanted, {WANTED} at most")
        self.names = names
        self.wanted.count = <uint8_t>len(names)
        return 0

    cdef int _note(self, list values) except -1:
        cdef bytes value
        cdef int i
        wanted_clear(&self.wanted)
        self.values = values
        for i, value in values:
            over(&self.wanted.value[i], value, len(value))
            trim(&self.wanted.value[i])
        return 0

    cdef BlockError _decode(self, const unsigned char* block, size_t size) except *:
        cdef Cursor v
        cdef BlockSaid* said = &self.said
        cdef int64_t length
        said.status = 0
        said.grpc_status = -1
        said.content = CONTENT_OTHER
        said.encoded = False
        said.length = said.retry_after_ms = -1
        try:
            fields = self.decode(block[:size], raw=True)
        except (InvalidTableIndexError, InvalidTableSizeError):
            return BLOCK_TABLE
        except OversizedHeaderListError:
            return BLOCK_TOO_LARGE
        except (HPACKError, LookupError, ValueError):       # hpack indexes what is cut off
            return BLOCK_MALFORMED
        if self.wanted.count:
            self._note([(self.names.index(name), bytes(value)) for name, value in fields if name in self.names])
        first = True
        for name, value in fields:
            over(&v, value, len(value))
            trim(&v)
            if name == b":status":
                if not first or left(&v) != 3:
                    return BLOCK_MALFORMED
                said.status = <int>digits(v, 3)
                if said.status < 100:
                    return BLOCK_MALFORMED
            elif name in FORBIDDEN or name[:1] == b":" or name != name.lower():
                return BLOCK_MALFORMED
            elif name == b"content-type":
                said.content = content_kind(v)
            elif name == b"content-length":
                length = digits(v, 18)
                if length < 0 or (said.length >= 0 and said.length != length):
                    return BLOCK_MALFORMED
                said.length = length
            elif name == b"content-encoding":
                said.encoded = said.encoded or (v.at < v.end and not is_word(v, b"identity"))
            elif name == b"retry-after":
                said.retry_after_ms = milliseconds(v)
            elif name == b"grpc-status":
                said.grpc_status = <int>digits(v, 4)
            elif name == b"grpc-message":
                self.message = unquote_to_bytes(value)
            first = False
        return BLOCK_OK

    def read_bytes(self, const unsigned char[::1] block not None):
        return <int>self.read(&block[0] if len(block) else NULL, len(block))

    def want_bytes(self, list names not None) -> None:
        self.want(names)

    def wanted_bytes(self) -> list:
        """What the latest block said of each field that is wanted; empty: nothing."""
        return [self.wanted.value[i].at[:left(&self.wanted.value[i])] if left(&self.wanted.value[i]) else b""
                for i in range(self.wanted.count)]

    def what(self) -> dict:
        """What the latest block said."""
        return self.said
