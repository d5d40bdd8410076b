"""The second recipe: long answers in which every line depends on the line before."""
