# A turn of a conversation after a reply that called tools: the calls go into the history, and what answers them names them.
from libc.stdint cimport uint32_t

from fastllmload._ext.events.calls cimport Calls, Text

# The assistant's message with *reply* and *calls*, a message without content for each call, and a comma. *before* and
# *behind* are what stands around a reply.
cdef int called_reply(Text* out, bytes before, bytes behind, const unsigned char* reply, size_t size, Calls* calls,
                      uint32_t turn) except -1

# *own*, messages of a turn that begins with the assistant's own, whose content (two quotes, from *hole* - 1 on) is the
# reply's. True: they are in *out*, with the calls that were made; False: they call no tool in a way that can be read.
cdef bint called_turn(Text* out, const unsigned char* own, size_t own_size, size_t hole, const unsigned char* reply,
                      size_t size, Calls* calls, uint32_t turn) except? False
