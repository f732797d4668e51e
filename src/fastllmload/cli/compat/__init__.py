"""Other tools' command lines: a table of each tool's options, what they mean here, and the translation."""
