"""The second recipe: long answers in which every line needs the line before."""
