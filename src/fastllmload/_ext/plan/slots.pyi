class Slots:
    """Slots of a closed loop; nothing in it is for Python."""
