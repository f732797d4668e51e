"""What the prompts of a trace have in common: ids of blocks, segments of text, kept conversations, the ideal hit rate."""
