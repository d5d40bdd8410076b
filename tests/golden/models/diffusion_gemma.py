"""Golden passes and a golden generation of a tiny DiffusionGemma, for tests/diffusion_gemma_test.cpp.

The network and its sampler, written down a second time in PyTorch and float64 (docs/guide/models.md names the sources). Called
by make_models.py, alike with --transformers: then the same checkpoint goes through transformers' own model and its own
generate(), whose random draws are replaced by the engine's generator (Philox, keyed by pass, position and token).
"""

import json
import math
import pathlib
import tempfile

import numpy as np
import torch

from references import IDS, ROWS, Checkpoint, Ties, rms_norm, router_logits

TEXT = {"model_type": "diffusion_gemma_text", "vocab_size": ROWS, "hidden_size": 64, "intermediate_size": 96,
        "moe_intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "global_head_dim": 32, "num_global_key_value_heads": 1, "num_experts": 8, "top_k_experts": 3,
        "sliding_window": 6, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "final_logit_softcapping": 10.0,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
        "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False, "tie_word_embeddings": True,
        "use_bidirectional_attention": "vision", "bos_token_id": 257, "eos_token_id": 258, "pad_token_id": 258}
CANVAS = 8
CONFIG = {"architectures": ["DiffusionGemmaForBlockDiffusion"], "model_type": "diffusion_gemma",
          "canvas_length": CANVAS, "tie_word_embeddings": True, "image_token_id": 271, "text_config": TEXT}
VISION = {"model_type": "gemma4_vision", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
          "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16}  # only so that transformers has one
NOISE = [17, 260, 3, 99, 200, 45, 271, 8]  # a canvas for single passes
DAMPING = 0.125
TEMPERATURE = 0.7  # of the prediction that is fed back in a single pass


def philox(counter, key):
    """Salmon et al., SC'11, over arrays of uint64 that hold 32-bit words; as src/base/rng.cpp."""
    c, k, low = list(counter), list(key), np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ k[0], p1 & low, (p0 >> np.uint64(32)) ^ c[3] ^ k[1], p0 & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return c


def uniform(seed, purpose, step, position, index):
    """In (0, 1), shape of position x index."""
    position, index = np.broadcast_arrays(np.asarray(position, np.uint64), np.asarray(index, np.uint64))
    words = philox([index, position, np.full_like(index, step), np.full_like(index, purpose)],
                   [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)])
    return (((words[0] << np.uint64(20)) | (words[1] >> np.uint64(12))).astype(np.float64) + 0.5) * 2.0**-52


def gumbel(seed, step, positions, vocab):
    return -np.log(-np.log(uniform(seed, 0, step, np.asarray(positions)[:, None], np.arange(vocab)[None])))


def noise(seed, step, positions, vocab):
    """The token shown at a position in pass `step` if nothing was accepted there."""
    return np.floor(uniform(seed, 2, step, positions, 0) * vocab).astype(np.int64)


def turn(x, positions, theta, pairs):
    """x [T, heads, d]: the first `pairs` of the pairs (j, j + d/2) rotate by position * theta^(-2j/d)."""
    half = x.shape[-1] // 2
    frequency = theta ** (-2.0 * torch.arange(half) / x.shape[-1]) * (torch.arange(half) < pairs)
    angle = (torch.as_tensor(positions)[:, None] * frequency)[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * torch.cos(angle) - b * torch.sin(angle), a * torch.sin(angle) + b * torch.cos(angle)], -1)


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Model:
    """Context passes append to the cache of K and V; canvas passes read it and do not change it."""

    def __init__(self, ck, ties):
        self.ck, self.ties = ck, ties
        self.cache = [[] for _ in TEXT["layer_types"]]  # by layer: (position, k, v)
        self.window = TEXT["sliding_window"]
        self.image = None  # (first position, rows): given embeddings, whose positions see each other

    def norm(self, x, name):
        return rms_norm(x, self.ck.gain(name + ".weight", x.shape[-1]), TEXT["rms_norm_eps"])

    def damped(self, x, name):
        """Small gains: the embedding dominates what layers add, so that some canvases become stable."""
        gain = self.ck(name + ".weight", x.shape[-1], offset=DAMPING, scale=0.0625)
        return rms_norm(x, gain, TEXT["rms_norm_eps"])

    def plain(self, x):
        return rms_norm(x, 1.0, TEXT["rms_norm_eps"])

    def gated(self, x, prefix):
        hidden, inner, ck = TEXT["hidden_size"], TEXT["intermediate_size"], self.ck
        up = x @ ck(prefix + "up_proj.weight", inner, hidden).T
        return (gelu(x @ ck(prefix + "gate_proj.weight", inner, hidden).T) * up) @ ck(
            prefix + "down_proj.weight", hidden, inner).T

    def attention(self, x, layer, positions, canvas):
        ck, prefix, hidden = self.ck, f"model.decoder.layers.{layer}.self_attn.", TEXT["hidden_size"]
        slides = TEXT["layer_types"][layer] == "sliding_attention"
        heads = TEXT["num_attention_heads"]
        d = TEXT["head_dim"] if slides else TEXT["global_head_dim"]
        kv_heads = TEXT["num_key_value_heads"] if slides else TEXT["num_global_key_value_heads"]
        rope = TEXT["rope_parameters"][TEXT["layer_types"][layer]]
        pairs = d // 2 if slides else int(rope["partial_rotary_factor"] * d // 2)

        def project(part, n):
            return (x @ ck(f"{prefix}{part}_proj.weight", n * d, hidden).T).reshape(len(x), n, d)

        q = turn(self.norm(project("q", heads), prefix + "q_norm"), positions, rope["rope_theta"], pairs)
        raw = project("k", kv_heads)
        v = self.plain(project("v", kv_heads) if slides else raw)
        k = turn(self.norm(raw, prefix + "k_norm"), positions, rope["rope_theta"], pairs)
        own = list(zip(positions, k, v))
        seen = self.cache[layer] + own
        if not canvas:
            self.cache[layer] = seen
        at = torch.tensor([p for p, _, _ in seen])
        keys = torch.stack([k for _, k, _ in seen]).repeat_interleave(heads // kv_heads, 1)
        vals = torch.stack([v for _, _, v in seen]).repeat_interleave(heads // kv_heads, 1)
        out = []
        for i, row in zip(positions, q):
            visible = torch.ones(len(seen), dtype=torch.bool) if canvas else at <= i
            if slides:
                visible &= at > (positions[0] if canvas else i) - self.window
            if self.image is not None and not canvas:
                first, rows = self.image
                if first <= i < first + len(rows):
                    visible |= (at >= first) & (at < first + len(rows))
            scores = torch.einsum("hd,jhd->hj", row, keys).masked_fill(~visible[None], -math.inf)
            out.append(torch.einsum("hj,jhd->hd", torch.softmax(scores, -1), vals).reshape(-1))
        return torch.stack(out) @ ck(prefix + "o_proj.weight", hidden, heads * d).T

    def experts(self, x, prefix):
        ck, hidden, inner, count = self.ck, TEXT["hidden_size"], TEXT["moe_intermediate_size"], TEXT["num_experts"]
        b = self.norm(x, prefix + "pre_feedforward_layernorm_2")
        routed = self.plain(x) * ck(prefix + "router.scale", hidden, offset=1.0, scale=0.125) / math.sqrt(hidden)
        router = ck(prefix + "router.proj.weight", count, hidden, scale=1.0, equal_rows=((5, 2), (6, 2), (7, 1)))
        scores = torch.softmax(router_logits(routed, router), -1)
        per_expert = ck(prefix + "router.per_expert_scale", count, offset=1.0, scale=0.125)
        gate_up = ck(prefix + "experts.gate_up_proj", count, 2 * inner, hidden)
        down = ck(prefix + "experts.down_proj", count, hidden, inner)
        out = torch.zeros_like(x)
        for row, s in enumerate(scores):
            chosen = self.ties.top(s, TEXT["top_k_experts"])
            for e, w in zip(chosen, s[chosen] / s[chosen].sum() * per_expert[chosen]):
                gate, up = (gate_up[e] @ b[row]).split(inner)
                out[row] += w * (down[e] @ (gelu(gate) * up))
        return out

    def __call__(self, tokens, first, canvas, probabilities=None):
        """Logits of tokens at positions first, ...; `probabilities` [tokens, vocabulary]: what is fed back."""
        ck, hidden = self.ck, TEXT["hidden_size"]
        table = ck("model.decoder.embed_tokens.weight", ROWS, hidden, scale=0.5)
        positions = list(range(first, first + len(tokens)))
        x = table[torch.as_tensor(tokens)] * math.sqrt(hidden)
        if self.image is not None:
            for i, position in enumerate(positions):
                if 0 <= position - self.image[0] < len(self.image[1]):
                    x[i] = self.image[1][position - self.image[0]]
        prefix = "model.decoder.self_conditioning."
        expected = torch.zeros_like(x) if probabilities is None else probabilities @ table * math.sqrt(hidden)
        fed_back = self.gated(self.norm(expected, prefix + "pre_norm"), prefix)
        if canvas:
            x = self.plain(x + fed_back)
        for layer in range(TEXT["num_hidden_layers"]):
            p = f"model.decoder.layers.{layer}."
            mixed = self.attention(self.norm(x, p + "input_layernorm"), layer, positions, canvas)
            x = x + self.damped(mixed, p + "post_attention_layernorm")
            dense = self.gated(self.norm(x, p + "pre_feedforward_layernorm"), p + "mlp.")
            dense = self.norm(dense, p + "post_feedforward_layernorm_1")
            routed = self.norm(self.experts(x, p), p + "post_feedforward_layernorm_2")
            x = x + self.damped(dense + routed, p + "post_feedforward_layernorm")
            scalars = [ck(name, 1, offset=0.75, scale=0.125) for name in
                       (f"model.encoder.language_model.layers.{layer}.layer_scalar", p + "layer_scalar")]
            x = x * scalars[1 if canvas else 0]
        cap = TEXT["final_logit_softcapping"]
        return cap * torch.tanh(self.norm(x, "model.decoder.norm") @ table.T / cap)


class Sampler:
    """The loop over canvases. Records how narrow its decisions are."""

    def __init__(self, options):
        self.o = options
        self.narrowest = math.inf

    def gap(self, value):
        self.narrowest = min(self.narrowest, float(value))

    def accept(self, entropy):
        """Lowest entropies first, while the sum of the preceding ones is at most the bound."""
        order = np.argsort(entropy, kind="stable")
        before = np.cumsum(entropy[order]) - entropy[order]
        self.gap(np.abs(before - self.o["entropy_bound"]).min())
        accepted = np.zeros(len(entropy), bool)
        accepted[order[before <= self.o["entropy_bound"]]] = True
        return accepted

    def draw(self, z, step, positions):
        keys = z + gumbel(self.o["seed"], step, positions, z.shape[1])
        best = np.sort(keys, 1)
        self.gap((best[:, -1] - best[:, -2]).min())
        return keys.argmax(1)

    def run(self, model, prompt, canvases):
        o, tokens, step, passes = self.o, list(prompt), 0, []
        for _ in range(canvases):
            model(tokens[len(tokens) - CANVAS if passes else 0 :], len(tokens) - CANVAS if passes else 0, False)
            positions = np.arange(len(tokens), len(tokens) + CANVAS)
            shown, fed_back, history = noise(o["seed"], step, positions, ROWS), None, []
            count = 0
            for left in range(o["steps"], 0, -1):
                temperature = o["t_min"] + (o["t_max"] - o["t_min"]) * left / o["steps"]
                z = model(shown, len(tokens), True, fed_back).numpy() / temperature
                fed_back = torch.softmax(torch.from_numpy(z), -1)
                p = fed_back.numpy()
                entropy = -(p * np.log(p)).sum(1)
                drawn, best = self.draw(z, step, positions), z.argmax(1)
                accepted = self.accept(entropy)
                step, count = step + 1, count + 1
                shown = np.where(accepted, drawn, noise(o["seed"], step, positions, ROWS))
                stable = len(history) >= o["stability"] and all((h == best).all() for h in history[-o["stability"] :])
                history.append(best)
                if o["stability"] == 0 or stable:
                    self.gap(abs(entropy.mean() - o["confidence"]))
                    if entropy.mean() < o["confidence"]:
                        break
            passes.append(count)
            tokens += [int(t) for t in best]
            if TEXT["eos_token_id"] in tokens[-CANVAS:]:
                break
        return tokens[len(prompt) :], passes


class SureSampler(Sampler):
    """mlx-vlm 0.7.10's "confidence-threshold" (generate/diffusion.py, at temperature 0), over canvases that grow."""

    def keep(self, p, kept):
        sure = p.max(1)
        free = np.flatnonzero(kept < 0)
        self.gap(np.abs(sure[free] - self.o["threshold"]).min())
        reached = free[sure[free] >= self.o["threshold"]]
        if len(reached) == 0:
            best = np.sort(sure[free])[::-1]
            self.gap(best[0] - best[1] if len(best) > 1 else math.inf)
            reached = free[sure[free].argmax()]
        kept[reached] = p.argmax(1)[reached]

    def run(self, model, prompt, length):
        o, tokens, read, step, passes = self.o, list(prompt), 0, 0, []
        while len(tokens) < len(prompt) + length:
            model(tokens[read:], read, False)
            read, done = len(tokens), len(tokens) - len(prompt)
            size = min(CANVAS, max(o["first"], done), length - done)
            positions = np.arange(read, read + size)
            shown, kept, fed_back, before = noise(o["seed"], step, positions, ROWS), np.full(size, -1), None, None
            count = 0
            for left in range(o["steps"], 0, -1):
                z = model(shown, read, True, fed_back).numpy()
                z = z / (o["t_min"] + (o["t_max"] - o["t_min"]) * left / o["steps"])
                fed_back = torch.softmax(torch.from_numpy(z), -1)
                p = fed_back.numpy()
                ranked = np.sort(p, 1)
                self.gap((ranked[:, -1] - ranked[:, -2]).min())
                self.keep(p, kept)
                step, count = step + 1, count + 1
                shown = np.where(kept >= 0, kept, noise(o["seed"], step, positions, ROWS))
                best, entropy = p.argmax(1), -(p * np.log(p)).sum(1).mean()
                if (kept >= 0).all():
                    break
                if before is not None and (best == before).all():
                    self.gap(abs(entropy - o["confidence"]))
                    if entropy < o["confidence"]:
                        break
                before = best
            passes.append(count)
            tokens += [int(t) for t in p.argmax(1)]
            if TEXT["eos_token_id"] in tokens[read:]:
                break
        return tokens[len(prompt) :], passes


# seed, steps, t_min, t_max, threshold, confidence, positions of the first canvas
SURE = [dict(zip(("seed", "steps", "t_min", "t_max", "threshold", "confidence", "first"), one), stability=1) for one in
        ((34, 8, 0.6, 0.9, 0.9, 0.01, 8), (36, 12, 0.5, 0.8, 0.8, 0.3, 2), (37, 3, 0.4, 0.8, 0.9, 0.005, 3))]

OPTIONS = [
    {"seed": 34, "steps": 8, "t_min": 0.2, "t_max": 0.5, "entropy_bound": 3.0, "stability": 1, "confidence": 0.6},
    {"seed": 35, "steps": 8, "t_min": 0.2, "t_max": 0.5, "entropy_bound": 3.0, "stability": 2, "confidence": 0.8},
    {"seed": 33, "steps": 8, "t_min": 0.4, "t_max": 0.8, "entropy_bound": 3.0, "stability": 0, "confidence": 0.9},
    {"seed": 15, "steps": 5, "t_min": 0.4, "t_max": 0.8, "entropy_bound": 0.3, "stability": 1, "confidence": 0.6},
]


def single_passes(ties=True):
    """Logits of the prompt, of a canvas after it, and of the canvas again with its own prediction fed back."""
    chances = Ties()
    ck = Checkpoint(ties=ties)
    model = Model(ck, chances)
    prompt = model(IDS, 0, False)
    canvas = model(NOISE, len(IDS), True)
    again = model(NOISE, len(IDS), True, torch.softmax(canvas / TEMPERATURE, -1))
    return ck, chances, torch.cat([prompt, canvas, again])


def generations(ck, canvases=3):
    for options in OPTIONS:
        ties, sampler = Ties(), Sampler(options)
        ids, passes = sampler.run(Model(ck, ties), IDS, canvases)
        yield options, ids, passes, sampler.narrowest, ties.gap


def write(folder):
    ck, ties, logits = single_passes()
    assert ties.count > 0 and ties.gap > 1e-5, f"ties {ties.count}, narrowest choice {ties.gap}"
    runs = []
    for options, ids, passes, narrowest, gap in generations(ck):
        print(f"diffusion-gemma, seed {options['seed']}: {passes} passes, narrowest decision {narrowest:.1g}, {gap:.1g}")
        assert narrowest > 1e-3 and gap > 1e-5
        runs.append({"options": options, "canvases": 3, "passes": passes, "ids": ids})
    assert any(len(run["passes"]) < 3 for run in runs), "no answer ends at a stop token"
    sure = []
    for options in SURE:
        sampler = SureSampler(options)
        ids, passes = sampler.run(Model(ck, Ties()), IDS, 20)
        print(f"diffusion-gemma, sure tokens, seed {options['seed']}: {passes} passes, narrowest {sampler.narrowest:.1g}")
        assert sampler.narrowest > 1e-5
        sure.append({"options": options, "length": 20, "passes": passes, "ids": ids})
    np.save(folder / "diffusion-gemma.npy", logits.to(torch.float32).numpy())
    head = {"config": CONFIG, "input_ids": IDS, "canvas": NOISE, "temperature": TEMPERATURE, "ties": ties.count}
    rows = ",\n  ".join(json.dumps(run) for run in runs)
    tensors = ",\n  ".join(json.dumps(entry) for entry in ck.listing)
    kept = ",\n  ".join(json.dumps(run) for run in sure)
    text = ("{" + json.dumps(head)[1:-1] + ',\n "generations": [\n  ' + rows + '],\n "sure": [\n  ' + kept
            + '],\n "tensors": [\n  ' + tensors + "]}\n")
    (folder / "diffusion-gemma.json").write_text(text)
    print(f"diffusion-gemma: ties {ties.count}, narrowest choice {ties.gap:.2g}, logits up to {logits.abs().max():.2f}")


def load_transformers(ck, config=CONFIG | {"vision_config": VISION}):
    from safetensors.torch import save_file
    from transformers import DiffusionGemmaForBlockDiffusion

    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory)
        (path / "config.json").write_text(json.dumps(config))
        save_file({n: t.contiguous() for n, t in ck.tensors.items()}, path / "model.safetensors", {"format": "pt"})
        return DiffusionGemmaForBlockDiffusion.from_pretrained(
            directory, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager").eval()


def transformers_generation(model, options, canvases, prompt=IDS, **images):
    """generate() with the engine's draws: its only randomness is multinomial() and the random canvas."""
    from transformers.models.diffusion_gemma import generation_diffusion_gemma as module

    state = {"step": 0, "first": len(prompt)}

    def drawn(probabilities, num_samples):
        positions = np.arange(state["first"], state["first"] + CANVAS)
        with np.errstate(divide="ignore"):
            noisy = gumbel(options["seed"], state["step"], positions, ROWS)
            keys = np.log(probabilities.double().numpy()) + noisy
        state["step"] += 1
        return torch.from_numpy(keys.argmax(1))[:, None]

    def random_canvas(self, batch_size, device):
        positions = np.arange(state["first"], state["first"] + CANVAS)
        return torch.from_numpy(noise(options["seed"], state["step"], positions, ROWS))[None]

    encoder, passes = model.model.encoder.forward, []

    def encode(*args, **kwargs):
        if passes:
            state["first"] += CANVAS
        passes.append(state["step"])
        return encoder(*args, **kwargs)

    saved = torch.multinomial, module.EntropyBoundSampler.initialize_canvas
    torch.multinomial, module.EntropyBoundSampler.initialize_canvas = drawn, random_canvas
    model.model.encoder.forward = encode
    try:
        config = module.DiffusionGemmaGenerationConfig(
            max_new_tokens=canvases * CANVAS, max_denoising_steps=options["steps"], t_min=options["t_min"],
            t_max=options["t_max"], stability_threshold=options["stability"],
            confidence_threshold=options["confidence"], eos_token_id=TEXT["eos_token_id"],
            sampler_config=module.EntropyBoundSamplerConfig(entropy_bound=options["entropy_bound"]))
        out = model.generate(torch.tensor([prompt]), generation_config=config, **images).sequences[0].tolist()
    finally:
        torch.multinomial, module.EntropyBoundSampler.initialize_canvas = saved
        del model.model.encoder.forward
    passes.append(state["step"])
    return out[len(prompt) :], [b - a for a, b in zip(passes, passes[1:])]


def compare_with_transformers():
    ck, _, expected = single_passes(ties=False)
    model = load_transformers(ck)
    with torch.no_grad():
        encoded = model.model.encoder(input_ids=torch.tensor([IDS]))
        cap = model.final_logit_softcapping
        prompt = cap * torch.tanh(model.lm_head(encoded.last_hidden_state) / cap)
        canvas = model(past_key_values=encoded.past_key_values, decoder_input_ids=torch.tensor([NOISE])).logits
        again = model(past_key_values=encoded.past_key_values, decoder_input_ids=torch.tensor([NOISE]),
                      self_conditioning_logits=canvas / TEMPERATURE).logits
    logits = torch.cat([prompt[0], canvas[0], again[0]]).double()
    worst = float((logits - expected).abs().max() / expected.abs().max())
    print(f"diffusion-gemma: transformers' logits differ by {worst:.1e} of the largest")
    assert worst < 1e-5
    for options, ids, passes, narrowest, _ in generations(ck):
        theirs = transformers_generation(model, options, 3)
        print(f"diffusion-gemma, seed {options['seed']}: {passes} passes, narrowest decision {narrowest:.1g}; "
              f"transformers' generate() {'agrees' if theirs == (ids, passes) else 'DIFFERS'}")
        assert theirs == (ids, passes), (theirs, ids, passes)
