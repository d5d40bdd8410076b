"""The forward passes of make_models.py: layers and networks from their definitions, in PyTorch and float64.

docs/guide/models.md names the sources. A network takes its tensors from a `Checkpoint`, by Hugging Face's names.
"""

import math

import torch
from tiny_values import values

ROWS = 272  # of the embedding; the test's tokenizer has 262 tokens
MASK = 260
IDS = [104, 101, 108, 108, 111, 257, 32, 260, 260, 115, 260, 260, 260, 33]

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


class Checkpoint:
    """Tensors with Hugging Face's names, in the order of their first use."""

    def __init__(self, ties=True):
        self.listing = []
        self.tensors = {}
        self.ties = ties

    def __call__(self, name, *shape, offset=0.0, scale=None, equal_rows=()):
        if name not in self.tensors:
            if scale is None:  # a power of two near 1 / sqrt(inputs), so that the values stay exact
                scale = 2.0 ** round(math.log2(0.9 / math.sqrt(shape[-1])))
            tensor = torch.from_numpy(values(name, math.prod(shape), offset, scale)).reshape(shape)
            for target, source in equal_rows if self.ties else ():
                tensor[target] = tensor[source]
            self.tensors[name] = tensor
            entry = {"name": name, "shape": list(shape), "offset": offset, "scale": scale}
            if equal_rows:
                entry["equal_rows"] = [list(pair) for pair in equal_rows]
            self.listing.append(entry)
        return self.tensors[name]

    def gain(self, name, width):
        return self(name, width, offset=1.0, scale=0.125)

    def bias(self, name, width):
        return self(name, width, scale=0.0625)


def rms_norm(x, gain, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def rope(x, theta, dims):
    """x [T, heads, head_dim]: pairs (j, j + dims/2) of the first `dims` are turned by position * theta^(-2j/dims)."""
    half = dims // 2
    angle = torch.arange(x.shape[0])[:, None] * theta ** (-2.0 * torch.arange(half) / dims)[None, :]
    cos, sin = torch.cos(angle)[:, None, :], torch.sin(angle)[:, None, :]
    a, b, rest = x[..., :half], x[..., half:dims], x[..., dims:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)


def attention(q, k, v, visible):
    """q [T, heads, d], k and v [T, kv_heads, d], visible [T, T]."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~visible[None], -math.inf)
    return torch.einsum("hij,jhd->ihd", torch.softmax(scores, -1), v)


def block_mask(length, block):
    """0: everything; B: position j is visible from i if j // B <= i // B; 1 is the causal mask."""
    i = torch.arange(length)
    return torch.ones(length, length, dtype=torch.bool) if block == 0 else i[None, :] // block <= i[:, None] // block


def swiglu(x, gate, up, down):
    return (torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T


class Ties:
    """How many choices of one model depend on the rule for ties, and the margin of the narrowest other one."""

    def __init__(self):
        self.count = 0
        self.gap = math.inf

    def top(self, keys, k):
        """The k largest, lower index first among equals."""
        order = torch.sort(keys, descending=True, stable=True)
        if k < keys.numel() and torch.isfinite(order.values[k]):
            if order.values[k - 1] == order.values[k]:
                self.count += 1
            else:
                self.gap = min(self.gap, float(order.values[k - 1] - order.values[k]))
        return order.indices[:k]


def router_logits(x, weight):
    """One sum per expert, so that equal rows give equal logits to the last bit, which a matrix product may not."""
    return (x[:, None, :] * weight[None]).sum(-1)


def softmax_router(ties, x, weight, used, normalize):
    scores = torch.softmax(router_logits(x, weight), -1)
    for row, s in enumerate(scores):
        chosen = ties["experts"].top(s, used)
        w = s[chosen]
        yield row, chosen, w / w.sum() if normalize else w


def sigmoid_router(ties, x, weight, bias, used, groups, groups_used, capacity, block, scale):
    scores = torch.sigmoid(router_logits(x, weight))
    keys = scores + bias
    experts = keys.shape[1]
    for row in range(x.shape[0]):
        allowed = torch.zeros(experts, dtype=torch.bool)
        if capacity:
            first = row // block * block
            pool = keys[first : first + block].max(0).values
            allowed[ties["groups"].top(pool, capacity)] = True
        else:
            best_two = keys[row].reshape(groups, -1).topk(2).values.sum(-1)
            for g in ties["groups"].top(best_two, groups_used):
                allowed[g * (experts // groups) : (g + 1) * (experts // groups)] = True
        chosen = ties["experts"].top(keys[row].masked_fill(~allowed, -math.inf), used)
        w = scores[row][chosen]
        yield row, chosen, scale * w / (w.sum() + 1e-20)


def experts_of(ck, prefix, config, inner):
    hidden = config["hidden_size"]
    for e in range(config["num_experts"]):
        p = f"{prefix}.experts.{e}."
        yield (
            ck(p + "gate_proj.weight", inner, hidden),
            ck(p + "up_proj.weight", inner, hidden),
            ck(p + "down_proj.weight", hidden, inner),
        )


def mixture(x, routed, experts):
    out = torch.zeros_like(x)
    for row, chosen, weights in routed:
        for e, w in zip(chosen, weights):
            out[row] += w * swiglu(x[row : row + 1], *experts[e])[0]
    return out


def qwen_like(ck, config, ids, block, *, bias=False, qk_norm=False, ffn=None):
    """Qwen2, Qwen3, LLaDA-MoE and their derivatives: tensors with Qwen's names."""
    c, eps = config, config["rms_norm_eps"]
    hidden, heads, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    d = c.get("head_dim", hidden // heads)
    table = ck("model.embed_tokens.weight", ROWS, hidden, scale=0.5)
    x, visible = table[ids], block_mask(len(ids), block)
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        a = rms_norm(x, ck.gain(p + "input_layernorm.weight", hidden), eps)
        qkv = []
        for part, n in (("q", heads), ("k", kv), ("v", kv)):
            y = a @ ck(f"{p}self_attn.{part}_proj.weight", n * d, hidden).T
            if bias:
                y = y + ck.bias(f"{p}self_attn.{part}_proj.bias", n * d)
            y = y.reshape(len(ids), n, d)
            if qk_norm and part != "v":
                y = rms_norm(y, ck.gain(f"{p}self_attn.{part}_norm.weight", d), eps)
            qkv.append(rope(y, c["rope_theta"], d) if part != "v" else y)
        mixed = attention(*qkv, visible).reshape(len(ids), heads * d)
        x = x + mixed @ ck(p + "self_attn.o_proj.weight", hidden, heads * d).T
        b = rms_norm(x, ck.gain(p + "post_attention_layernorm.weight", hidden), eps)
        if ffn is not None:
            x = x + ffn(b, p + "mlp")
        else:
            inner = c["intermediate_size"]
            x = x + swiglu(
                b,
                ck(p + "mlp.gate_proj.weight", inner, hidden),
                ck(p + "mlp.up_proj.weight", inner, hidden),
                ck(p + "mlp.down_proj.weight", hidden, inner),
            )
    x = rms_norm(x, ck.gain("model.norm.weight", hidden), eps)
    return x @ (table if c["tie_word_embeddings"] else ck("lm_head.weight", ROWS, hidden)).T


def softmax_experts(ck, ties, config, inner, normalize):
    def ffn(x, prefix):
        # Experts 2, 5 and 6 are chosen alike, and so are 1 and 7.
        router = ck(f"{prefix}.gate.weight", config["num_experts"], config["hidden_size"], scale=0.125,
                    equal_rows=((5, 2), (6, 2), (7, 1)))
        routed = softmax_router(ties, x, router, config["num_experts_per_tok"], normalize)
        return mixture(x, routed, list(experts_of(ck, prefix, config, inner)))

    return ffn


def llada2(ck, ties, config, ids, mixed=()):
    """`mixed`: position and embedding of rows that are read in place of a token's."""
    c, eps = config, config["rms_norm_eps"]
    hidden, heads, kv, d = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    block = c.get("block_size", 32)
    x = ck("model.word_embeddings.weight", ROWS, hidden, scale=0.5)[ids]
    for position, embedding in mixed:
        x[position] = embedding
    visible = block_mask(len(ids), block)

    def dense(prefix, b, inner):
        return swiglu(
            b,
            ck(prefix + ".gate_proj.weight", inner, hidden),
            ck(prefix + ".up_proj.weight", inner, hidden),
            ck(prefix + ".down_proj.weight", hidden, inner),
        )

    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        a = rms_norm(x, ck.gain(p + "input_layernorm.weight", hidden), eps)
        qkv = a @ ck(p + "attention.query_key_value.weight", (heads + 2 * kv) * d, hidden).T
        q, k, v = (t.reshape(len(ids), -1, d) for t in qkv.split([heads * d, kv * d, kv * d], -1))
        q = rms_norm(q, ck.gain(p + "attention.query_layernorm.weight", d), eps)
        k = rms_norm(k, ck.gain(p + "attention.key_layernorm.weight", d), eps)
        rotated = int(d * c["partial_rotary_factor"])
        mixed = attention(rope(q, c["rope_theta"], rotated), rope(k, c["rope_theta"], rotated), v, visible)
        x = x + mixed.reshape(len(ids), heads * d) @ ck(p + "attention.dense.weight", hidden, heads * d).T
        b = rms_norm(x, ck.gain(p + "post_attention_layernorm.weight", hidden), eps)
        if layer < c["first_k_dense_replace"]:
            x = x + dense(p + "mlp", b, c["intermediate_size"])
            continue
        # Group 2 (experts 8 to 11) is chosen like group 1, and expert 13 like 12; the bias agrees.
        alike = ((8, 4), (9, 5), (10, 6), (11, 7), (13, 12))
        router = ck(p + "mlp.gate.weight", c["num_experts"], hidden, scale=0.125, equal_rows=alike)
        bias = ck(p + "mlp.gate.expert_bias", c["num_experts"], scale=0.125, equal_rows=alike)
        routed = sigmoid_router(ties, b, router, bias, c["num_experts_per_tok"], c["n_group"], c["topk_group"],
                                c.get("expert_capacity", 0), block, c["routed_scaling_factor"])
        experts = list(experts_of(ck, p + "mlp", c, c["moe_intermediate_size"]))
        x = x + mixture(b, routed, experts) + dense(p + "mlp.shared_experts", b, c["moe_intermediate_size"])
    return rms_norm(x, ck.gain("model.norm.weight", hidden), eps) @ ck("lm_head.weight", ROWS, hidden).T


def yarn_frequencies(rope, dims):
    """YaRN (arXiv 2309.00071, 3.2): fast pairs keep theta^(-2j/dims), slow ones are divided by the factor."""
    theta, length = rope["rope_theta"], rope["original_max_position_embeddings"]

    def pair(turns):
        return dims * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(pair(rope["beta_fast"])), 0), min(math.ceil(pair(rope["beta_slow"])), dims - 1)
    assert 0 < low < high < dims // 2, "the ramp should show"
    slow = torch.clamp((torch.arange(dims // 2) - low) / (high - low), 0, 1)
    plain = theta ** (-2.0 * torch.arange(dims // 2) / dims)
    return plain * (1 - slow) + plain / rope["factor"] * slow


def yarn_rope(x, rope):
    """cos and sin are times the ratio of the two temperatures 0.1 m ln(factor) + 1."""
    half = x.shape[-1] // 2
    over, under = (0.1 * rope[m] * math.log(rope["factor"]) + 1 for m in ("mscale", "mscale_all_dim"))
    angle = torch.arange(x.shape[0])[:, None] * yarn_frequencies(rope, x.shape[-1])[None, :]
    cos, sin = (f(angle)[:, None, :] * over / under for f in (torch.cos, torch.sin))
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def nemotron(ck, config, ids, block, adapter=None):
    """Nemotron-Labs-Diffusion; `adapter(layer)`: (A, B, scale) of the low-rank addition to o_proj, or None."""
    c, eps, rope = config, config["rms_norm_eps"], config["rope_parameters"]
    hidden, heads, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    d, inner = c["head_dim"], c["intermediate_size"]
    x, visible = ck("encoder.embed_tokens.weight", ROWS, hidden, scale=0.5)[ids], block_mask(len(ids), block)
    growth = 1 + rope["llama_4_scaling_beta"] * torch.log(
        1 + torch.floor(torch.arange(len(ids)) / rope["original_max_position_embeddings"]))
    for layer in range(c["num_hidden_layers"]):
        p = f"encoder.layers.{layer}."
        a = rms_norm(x, ck.gain(p + "input_layernorm.weight", hidden), eps)
        q, k, v = ((a @ ck(f"{p}self_attn.{part}_proj.weight", n * d, hidden).T).reshape(len(ids), n, d)
                   for part, n in (("q", heads), ("k", kv), ("v", kv)))
        q, k = yarn_rope(q, rope) * growth[:, None, None], yarn_rope(k, rope)
        mixed = attention(q, k, v, visible).reshape(len(ids), heads * d)
        out = mixed @ ck(p + "self_attn.o_proj.weight", hidden, heads * d).T
        if adapter is not None:
            down, up, scale = adapter(layer)
            out = out + scale * (mixed @ down.T) @ up.T
        x = x + out
        b = rms_norm(x, ck.gain(p + "post_attention_layernorm.weight", hidden), eps)
        x = x + swiglu(b, ck(p + "mlp.gate_proj.weight", inner, hidden), ck(p + "mlp.up_proj.weight", inner, hidden),
                       ck(p + "mlp.down_proj.weight", hidden, inner))
    x = rms_norm(x, ck.gain("encoder.norm.weight", hidden), eps)
    return x @ ck("diffusion_head.weight", ROWS, hidden).T
