"""The page of a run as blocks, one module for each of its sections."""
