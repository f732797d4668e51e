"""Compares two sides of runs or several systems, with intervals, tests and gates.

With one run a side, intervals come from the variation within the run; with several, the run is the unit (spec/procedures 3).
"""
