"""What a worker records while the clock runs: rows, counters, histograms, in memory that others read."""
