"""How well a finished run or procedure followed the methodology: requirements, checks, verdict."""
