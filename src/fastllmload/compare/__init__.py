"""Do runs differ, and by how much: two sides or several systems, with intervals, tests and gates.

With one run a side what varies within the run decides; with several, the run is the unit (procedures 3).
"""
