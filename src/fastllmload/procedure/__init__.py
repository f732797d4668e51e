"""Procedures: what needs several runs. The ten tests of the IETF draft, searches and sweeps, all over `lab.Lab`.

lab        the folder of a procedure: levels run once, found again when it is started again
steps      what must be done to the system before a level: hooks, restarts, warm-up
level      one finished run, with the figures that procedures decide by
journal    procedure.json
"""
