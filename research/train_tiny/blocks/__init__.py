"""The fifth recipe: attention in blocks, which also reads one position at a time."""
