"""Computes the data of charts: series, curves and chosen requests of a run, as plain arrays.

Pure functions. Memory is bounded by the number of bins and buckets, however many requests and tokens a run has.
"""
