"""Terminal output: the live view, plain lines, the closing summary."""
