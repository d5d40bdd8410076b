"""Muon for the matrices inside the blocks, AdamW for everything else."""

import torch


def orthogonalised(g, steps=5, low_precision=False):
    """Nearly the orthogonal factor of g: all singular values are driven towards 1.

    A quintic Newton-Schulz iteration; its coefficients trade exactness (values end in about 0.7 to 1.2) for
    fast growth of small singular values, so bfloat16 loses nothing that matters, and is faster for wide
    matrices.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    dtype = x.dtype
    if low_precision:
        x = x.bfloat16()
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return (x.T if tall else x).to(dtype)


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.95, low_precision=False):
        super().__init__(params, dict(lr=lr, momentum=momentum))
        self.low_precision = low_precision

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                update = p.grad.lerp(state["momentum"], group["momentum"])  # Nesterov
                # A tall matrix has more outputs than directions to share its update among.
                scale = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                p.add_(orthogonalised(update, low_precision=self.low_precision),
                       alpha=-group["lr"] * scale)


def make_optimizers(model, low_precision=False):
    inside, outside = [], []
    for name, p in model.named_parameters():
        (inside if p.dim() == 2 and ".blocks." in name else outside).append(p)
    return Muon(inside, lr=0.0, low_precision=low_precision), torch.optim.AdamW(outside, lr=0.0, betas=(0.9, 0.98),
                                                   weight_decay=0.0)


def set_rates(optimizers, muon_rate, adam_rate):
    for optimizer, rate in zip(optimizers, (muon_rate, adam_rate)):
        for group in optimizer.param_groups:
            group["lr"] = rate
