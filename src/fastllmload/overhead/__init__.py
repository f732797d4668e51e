"""What a gateway adds: the same plan sent directly and through it, in turn."""
