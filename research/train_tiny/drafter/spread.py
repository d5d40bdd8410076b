"""Which layers of a target a drafter reads."""


def spread(layers, count):
    """Layers from the second to the last but one, evenly; the last layer's output is not read (its norm is
    ambiguous)."""
    last = layers - 2
    return tuple(sorted({round(1 + i * (last - 1) / max(1, count - 1)) for i in range(count)}))
