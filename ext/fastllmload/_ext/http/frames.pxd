# Frames of HTTP/2 (RFC 9113), for both sides: numbers and limits.
cdef enum FrameType:
    FT_DATA = 0
    FT_HEADERS = 1
    FT_PRIORITY = 2
    FT_RST_STREAM = 3
    FT_SETTINGS = 4
    FT_PUSH_PROMISE = 5
    FT_PING = 6
    FT_GOAWAY = 7
    FT_WINDOW_UPDATE = 8
    FT_CONTINUATION = 9

cdef enum FrameFlag:
    FF_END_STREAM = 1
    FF_ACK = 1
    FF_END_HEADERS = 4
    FF_PADDED = 8
    FF_PRIORITY = 32

cdef enum Http2Code:        # RFC 9113 7
    CODE_NO_ERROR = 0
    CODE_PROTOCOL = 1
    CODE_INTERNAL = 2
    CODE_FLOW_CONTROL = 3
    CODE_STREAM_CLOSED = 5
    CODE_FRAME_SIZE = 6
    CODE_REFUSED_STREAM = 7
    CODE_CANCEL = 8
    CODE_COMPRESSION = 9
    CODE_CALM = 11

cdef enum Setting:          # RFC 9113 6.5.2
    SET_ENABLE_PUSH = 2
    SET_MAX_CONCURRENT_STREAMS = 3
    SET_INITIAL_WINDOW_SIZE = 4
    SET_MAX_FRAME_SIZE = 5

cdef enum:
    FRAME_HEADER = 9        # bytes before each payload
    MAX_FRAME = 16384       # bytes of a payload that the peer may send: the setting that every peer begins with
    STREAM_LAST = 0x7FFFFFFF
    WINDOW_MOST = 0x7FFFFFFF
    WINDOW_FIRST = 65535    # of a connection and of a stream, before anything else is said
    TOP_UP = 1 << 30        # bytes received until a window is opened again: it never closes
