# What the simulated engine writes for an endpoint of gRPC: messages instead of texts, from templates of the same language.
from fastllmload._ext.simbody.form cimport Form

cdef class MessageForm(Form):
    pass
