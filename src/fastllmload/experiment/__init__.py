"""Experiments: load levels in one folder; levels that are finished are not measured again after a restart.

Procedures, searches and sweeps all measure the levels of one `experiment.Experiment`.
"""
