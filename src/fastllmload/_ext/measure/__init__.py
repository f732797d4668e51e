"""From rows to numbers, after the run."""
