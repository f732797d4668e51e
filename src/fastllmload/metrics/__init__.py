"""The definitions of the metrics, computed from the rows of a run."""
