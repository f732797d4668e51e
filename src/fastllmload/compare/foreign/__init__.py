"""Result files of other tools as runs of a comparison: one file for each tool, with what its figures are defined as."""
