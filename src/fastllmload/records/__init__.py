"""The files of a run folder: their layout, how they are written, merged, checked and read."""
