# The language of the templates that are declared in endpoint/simulated.py, as numbers.

cdef enum:                      # Says: conditions of a template that are known before it is written; they choose its variant
    SAYS_COUNTED = 1            # every event says the usage up to then
    SAYS_IDS = 2                # events with text list the ids of their tokens
    SAYS_LOGPROBS = 4
    SAYS_USAGE = 8
    SAYS_THOUGHT = 16           # the stream had reasoning
    SAYS_SILENT = 32            # ... and ends without content
    VARIANTS = 64

cdef enum:                      # Number: slots that hold a number
    NUMBER_PROMPT = 0
    NUMBER_COMPLETION = 1       # tokens up to and with this event's
    NUMBER_CACHED = 2
    NUMBER_TOTAL_NS = 3         # durations
    NUMBER_LOAD_NS = 4
    NUMBER_PROMPT_EVAL_NS = 5
    NUMBER_EVAL_NS = 6
    NUMBER_SEQUENCE = 7         # events before this one
    NUMBER_INDEX = 8            # blocks before this one
    NUMBER_CALL = 9             # tool calls before this one
    NUMBER_REASONING = 10       # tokens of reasoning so far
    NUMBERS = 11

cdef enum:
    NOWHERE = -1                # place of what is not in a piece

cdef enum Slot:                 # a Number, or
    SLOT_TOTAL = 11             # prompt and completion; not a Number: those are below NUMBERS
    SLOT_NONE = 12
    SLOT_TEXT = 13              # of the event
    SLOT_WHOLE_TEXT = 14        # of the block or reply so far; at the end of a stream its content
    SLOT_IDS = 15               # of the event's tokens, at the end of a stream of the last event's
    SLOT_WHOLE_IDS = 16
    SLOT_LOGPROBS = 17          # one of the form's templates for each of the event's tokens
    SLOT_LINE_END = 18
    SLOT_CALL_HEX = 19          # the number of the call, 4 digits
    SLOT_UNCACHED = 20          # prompt without cached
    SLOT_THOUGHT = 21           # all text of reasoning
    SLOT_WHOLE_CALL = 22        # all arguments of the call
    SLOT_CALLS = 23             # all calls of the reply
    SLOT_TOKENS = 24            # number of these
    SLOT_REQUEST_ID = 25        # that the client gave
    SLOT_OPEN = 26              # of messages: what has its size before it begins, and ends
    SLOT_CLOSE = 27
    SLOT_RAW = 32               # + another slot: a number of four bytes, or a text with such a number before it

cdef bytes inside(str text)                                     # a text as JSON has it, without quotes
cdef list listed(object events, str before)                     # the templates of a group of events
cdef object ended(object events, str word)                      # with the word for why a reply ended
cdef str text_of(object events)                                 # all of it, without names
cdef int conditions(str text)                                   # Says that make a difference
cdef list parsed(str text, int says, dict fixed)                # its steps in the variant of *says*
