# Limits that one file sets and another relies on, checked by the C compiler.
cdef extern from * nogil:
    """
    /* An expression, so that it may stand wherever a call may. The build fails where *condition* is not a constant that holds. */
    #define FLL_STATIC_ASSERT(condition) ((void)sizeof(struct { int fll; _Static_assert((condition), #condition); }))
    """
    void FLL_STATIC_ASSERT(bint condition) noexcept
