"""This host: its limits, its processors, its clocks, and what its processes used."""
