"""MDLM (arXiv 2406.07524) for make_models.py, from its definition: a DiT whose LayerNorms are modulated by the time.

Nothing is folded here: the network reads the embedding of time 0 in every layer, as the published models do, which were
trained without conditioning on the time.
"""

import math

import torch
from references import attention, rope
from torch.nn.functional import gelu, layer_norm, silu

CONFIG = {"architectures": ["MDLM"], "model_type": "mdlm", "hidden_dim": 64, "n_blocks": 2, "n_heads": 4, "cond_dim": 16,
          "model_length": 128, "time_conditioning": False, "dropout": 0.1}
WAVES = 256


def time_embedding(ck, time, cond):
    """silu of the MLP over sinusoids of the time, whose periods grow to 10000."""
    angle = time * torch.exp(-math.log(10000) * torch.arange(WAVES // 2) / (WAVES // 2))
    waves = torch.cat([torch.cos(angle), torch.sin(angle)])
    p = "backbone.sigma_map.mlp."
    hidden = silu(ck(p + "0.weight", cond, WAVES) @ waves + ck.bias(p + "0.bias", cond))
    return silu(ck(p + "2.weight", cond, cond) @ hidden + ck.bias(p + "2.bias", cond))


def modulation(ck, name, condition, width, parts):
    """Offsets keep the gates away from 0, where a layer would not show."""
    weight = ck(name + ".weight", parts * width, condition.numel(), scale=0.0625)
    return (weight @ condition + ck(name + ".bias", parts * width, offset=0.5, scale=0.125)).chunk(parts)


def norm(ck, x, name, shift, scale):
    width = x.shape[-1]
    return layer_norm(x, [width], eps=1e-5) * ck.gain(name + ".weight", width) * (1 + scale) + shift


def forward(ck, config, ids, rows):
    width, heads = config["hidden_dim"], config["n_heads"]
    x = ck("backbone.vocab_embed.embedding", rows, width, offset=0.25, scale=0.5)[ids]
    condition = time_embedding(ck, torch.tensor(0.0), config["cond_dim"])
    visible = torch.ones(len(ids), len(ids), dtype=torch.bool)
    for block in range(config["n_blocks"]):
        p = f"backbone.blocks.{block}."
        m = modulation(ck, p + "adaLN_modulation", condition, width, 6)
        a = norm(ck, x, p + "norm1", m[0], m[1])
        qkv = (a @ ck(p + "attn_qkv.weight", 3 * width, width).T).reshape(len(ids), 3, heads, width // heads)
        q, k, v = qkv.unbind(1)
        mixed = attention(rope(q, 10000.0, q.shape[-1]), rope(k, 10000.0, k.shape[-1]), v, visible)
        x = x + m[2] * (mixed.reshape(len(ids), width) @ ck(p + "attn_out.weight", width, width).T)
        b = norm(ck, x, p + "norm2", m[3], m[4])
        inner = gelu(b @ ck(p + "mlp.0.weight", 4 * width, width).T + ck.bias(p + "mlp.0.bias", 4 * width),
                     approximate="tanh")
        out = inner @ ck(p + "mlp.2.weight", width, 4 * width).T + ck.bias(p + "mlp.2.bias", width)
        x = x + m[5] * out
    p = "backbone.output_layer."
    shift, scale = modulation(ck, p + "adaLN_modulation", condition, width, 2)
    x = norm(ck, x, p + "norm_final", shift, scale)
    return x @ ck(p + "linear.weight", rows, width).T + ck.bias(p + "linear.bias", rows)
