# How many tokens a prompt has, and the hashes of its blocks. Counts of id arrays are exact; of text they are a declared estimate.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastllmload._ext.sim.sequence cimport Sequence

cdef struct Prompt:             # one pass over the raw JSON of `prompt` or `messages`
    int64_t tokens
    int64_t messages            # JSON objects directly in the outermost array
    int64_t strings             # string values, keys not counted
    int64_t numbers             # numbers outside strings
    uint64_t hash               # chained over all tokens so far
    uint32_t block              # tokens per hashed block; 0 = no hashes are kept
    uint32_t run                # length of the current run of one class
    uint8_t kind                # class of the current run

# Reads *raw* (valid JSON) and fills the sequence's prompt_tokens and hashes.
cdef int prompt_read(Prompt* p, const uint8_t* raw, size_t size, uint32_t block, Sequence* s) except -1
