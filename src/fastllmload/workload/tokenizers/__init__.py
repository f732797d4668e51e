"""Reference tokenizers, by name or from a file."""
