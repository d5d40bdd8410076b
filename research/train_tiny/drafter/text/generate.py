"""Texts that a target writes: many at a time, one position per step, every shape fixed.

All texts of a batch stand at the same position. A text begins with given tokens. What follows is drawn: a question (if
the given tokens end inside one), then an answer, then the next question, each closed by the target's end token and
followed by the tokens of its chat template between turns. So no row of a batch is idle, and the questions are the
target's own idea of a conversation. Beside its tokens a text keeps what a drafter needs: hidden states, the greedy
prediction of each position, and what each token is.
"""

import sys
import time

import torch

USER, ANSWER, PLAIN = 0, 1, 2       # what a text goes on with after its given tokens; and what a token was drawn as
BETWEEN, GIVEN = 3, 4               # tokens of the template; tokens that were given


class Machine:
    """States of a text: user, answer, plain, then the tokens that the template has after a question and an answer."""

    def __init__(self, end, to_answer, to_user, device):
        first = 3
        states = first + len(to_answer) + len(to_user)
        emit, on_end, on_other = [-1] * 3 + to_answer + to_user, list(range(states)), list(range(states))
        on_end[USER], on_end[ANSWER] = first, first + len(to_answer)
        for i in range(first, states):
            on_end[i] = on_other[i] = i + 1
        for table in (on_end, on_other):
            table[first + len(to_answer) - 1] = ANSWER
            table[states - 1] = USER
        self.end = end
        self.emit, self.on_end, self.on_other = (torch.tensor(one, device=device) for one in (emit, on_end, on_other))

    def next(self, state, given, drawn):
        """(tokens, their kinds, states after them); given: tokens or -1."""
        emitted = self.emit[state]
        token = torch.where(given >= 0, given, torch.where(emitted >= 0, emitted, drawn))
        kind = torch.where(given >= 0, GIVEN, state.clamp(max=BETWEEN))
        after = torch.where(token == self.end, self.on_end[state], self.on_other[state])
        return token, kind, torch.where(given >= 0, state, after)


class Generator:
    """Batches of `texts` texts of `length` tokens; `layers`: whose outputs are kept."""

    def __init__(self, target, machine, texts, length, layers, parts=4, graphs=True):
        device, width = target.device, len(layers) * target.config.width
        self.target, self.machine, self.layers, self.length = target, machine, layers, length
        self.caches = target.caches(texts, length)
        self.given = torch.full((length, texts), -1, device=device)
        self.ids, self.greedy, self.kind = (torch.zeros_like(self.given) for _ in range(3))
        self.states = torch.zeros(length, texts, width, device=device, dtype=target.dtype)
        self.heat = torch.zeros(3, texts, device=device)
        self.state = torch.zeros(texts, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.sizes = [length * (i + 1) // parts for i in range(parts)]
        self.graphs = {}
        if graphs and device.type == "cuda":
            self.capture()

    def step(self, seen):
        at, after = self.position, (self.position + 1).clamp(max=self.length - 1)
        logits, states = self.target.step(self.ids.index_select(0, at)[0], at, self.caches, seen, self.layers)
        heat = self.heat.gather(0, self.state.clamp(max=PLAIN)[None])[0]
        noise = -torch.empty_like(logits).exponential_().log_()
        drawn = torch.add(logits, noise * heat[:, None]).argmax(-1)
        token, kind, state = self.machine.next(self.state, self.given.index_select(0, after)[0], drawn)
        self.states.index_copy_(0, at, states[None])
        self.ids.index_copy_(0, after, token[None])
        self.kind.index_copy_(0, after, kind[None])
        self.greedy.index_copy_(0, after, logits.argmax(-1)[None])
        self.state.copy_(state)
        self.position.add_(1)

    def capture(self):
        """A graph for each number of positions that are looked at. Without them, steps take more time, not less text."""
        try:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for seen in self.sizes:
                    self.step(seen)
            torch.cuda.current_stream().wait_stream(stream)
            for seen in self.sizes:
                graph = torch.cuda.CUDAGraph()
                shared = next((one.pool() for one in self.graphs.values()), None)
                with torch.cuda.graph(graph, pool=shared):
                    self.step(seen)
                self.graphs[seen] = graph
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            print(f"no CUDA graphs: {error}", file=sys.stderr, flush=True)
            self.graphs = {}

    @torch.no_grad()
    def run(self, given, goes_on, heat, until=None):
        """One batch. given: ids [texts, length], -1 where the target goes on; goes_on: USER, ANSWER or PLAIN [texts];
        heat: temperatures of the three [3, texts]; until: time.monotonic() at which to stop early. Returns how many
        positions have been written."""
        self.given.copy_(given.T)
        self.heat.copy_(heat)
        self.state.copy_(goes_on)
        self.position.zero_()
        self.ids[0].copy_(self.given[0])
        self.greedy[0].copy_(self.given[0])
        self.kind.fill_(GIVEN)
        for at in range(self.length):
            seen = next(size for size in self.sizes if size > at)
            if seen in self.graphs:
                self.graphs[seen].replay()
            else:
                self.step(seen)
            if until is not None and at % 64 == 63:
                if self.position.is_cuda:
                    torch.cuda.synchronize()
                if time.monotonic() > until:
                    return at + 1
        return self.length
