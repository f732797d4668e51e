class EventTree:
    """What one event says, by way of a msgspec tree; for compiled callers."""
