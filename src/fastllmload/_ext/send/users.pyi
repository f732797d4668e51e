class Users:
    """What users do besides waiting."""

    @property
    def only_wait(self) -> bool: ...
