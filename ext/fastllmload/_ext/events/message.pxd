# What one event says that is a protobuf message, by the tables of its dialect, in the Facts that an event of JSON gives.
from libc.stdint cimport uint8_t

from fastllmload._ext.bytes.schema cimport Written
from fastllmload._ext.events.dialect cimport DialectTable
from fastllmload._ext.events.facts cimport Facts

# *text*: has the event's text in the form that JSON gives it, where the message has another. False: it is not such a message.
# MemoryError where there is none.
cdef bint message_read(Facts* f, const DialectTable* d, const unsigned char* data, size_t size, Written* text) except? False
