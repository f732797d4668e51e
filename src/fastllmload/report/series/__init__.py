"""What a run looked like: series, curves and chosen requests out of its rows and stamps, as plain arrays.

Pure functions, for whoever draws; nothing here is judged. Work and memory are bounded by the number of bins and
buckets, however many requests and tokens a run had.
"""
