"""Experiments: load levels measured in one folder, each once, found again after a restart.

Procedures, searches and sweeps are all made of levels of one `experiment.Experiment`.
"""
