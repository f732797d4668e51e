"""Reading and writing bytes: a bounded cursor, JSON without a tree, numbers, what a read leaves incomplete."""
