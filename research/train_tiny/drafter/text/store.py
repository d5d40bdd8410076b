"""Generated texts with all that training and measuring ask of them, kept on the device."""

import torch

from .generate import ANSWER, PLAIN


class Store:
    """ids, greedy, kind: [texts, length]; states: [texts, length, layers * width] of the target."""

    def __init__(self, texts, length, width, device, dtype):
        self.ids, self.greedy = (torch.zeros(texts, length, dtype=torch.int32, device=device) for _ in range(2))
        self.kind = torch.zeros(texts, length, dtype=torch.int8, device=device)
        self.states = torch.empty(texts, length, width, dtype=dtype, device=device)
        self.count = 0

    @property
    def space(self):
        return self.ids.shape[0] - self.count

    def add(self, generator):
        n = min(self.space, generator.ids.shape[1])
        rows = slice(self.count, self.count + n)
        self.ids[rows] = generator.ids[:, :n].T.int()
        self.greedy[rows] = generator.greedy[:, :n].T.int()
        self.kind[rows] = generator.kind[:, :n].T.to(torch.int8)
        for begin in range(0, n, 64):
            end = min(n, begin + 64)
            self.states[self.count + begin:self.count + end] = generator.states[:, begin:end].transpose(0, 1)
        self.count += n
        return n

    def states_of(self, texts):
        """Of a list of numbers of texts; the table is too large for kernels that count in 32 bits."""
        return torch.stack([self.states[one] for one in texts])

    def drawn(self, texts):
        """bool [texts, length]: tokens of an answer."""
        kind = self.kind[texts]
        return (kind == ANSWER) | (kind == PLAIN)

    def anchors(self, texts, end):
        """bool [texts, length]: tokens of an answer that the same answer goes on after."""
        drawn = self.drawn(texts)
        last = torch.zeros_like(drawn[:, :1])
        return drawn & torch.cat((drawn[:, 1:], last), 1) & (self.ids[texts] != end)

    def wanted(self, texts, starts, block):
        """(targets, counts) [texts, anchors, block - 1] of blocks that begin at `starts` [texts, anchors].

        The target is the greedy prediction for each position. It counts within the answer, up to the first one that the
        text does not follow.
        """
        length = self.ids.shape[1]
        places = starts[:, :, None] + torch.arange(1, block, device=starts.device)
        inside = places < length
        flat = places.clamp(max=length - 1).flatten(1)

        def at(table):
            return table.gather(1, flat).view(places.shape)

        targets = at(self.greedy[texts].long())
        inside = (inside & at(self.drawn(texts))).long().cumprod(-1).bool()
        same = (targets == at(self.ids[texts].long())).long()
        follows = torch.cat((torch.ones_like(same[..., :1]), same[..., :-1].cumprod(-1)), -1).bool()
        return targets, inside & follows
