"""Golden passes of a tiny DiffusionGemma that reads an image, for tests/gemma_vision_test.cpp.

Gemma 4's vision tower written down a second time in PyTorch and float64 (docs/guide/models.md names the sources), in front of
diffusion_gemma.py's network. Called by make_models.py, alike with --transformers: then the same checkpoint, pixels and
prompt go through transformers' own tower, model and generate().
"""

import json
import math

import numpy as np
import torch

from diffusion_gemma import CONFIG, NOISE, OPTIONS, TEMPERATURE, TEXT, Model, Sampler, gelu, load_transformers, \
    transformers_generation, turn
from references import IDS, Checkpoint, Ties, rms_norm
from tiny_values import values

BEGIN, IMAGE, END = 262, 263, 264  # tokens
VISION = {"model_type": "gemma4_vision", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
          "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "patch_size": 4, "pooling_kernel_size": 3,
          "position_embedding_size": 40, "standardize": True, "use_clipped_linears": False, "rms_norm_eps": 1e-6,
          "hidden_activation": "gelu_pytorch_tanh"}
WINDOW = 4  # shorter than an image
IMAGE_CONFIG = CONFIG | {"vision_config": VISION, "text_config": TEXT | {"sliding_window": WINDOW},
                         "boi_token_id": BEGIN, "image_token_id": IMAGE, "eoi_token_id": END}
WIDTH, HEIGHT = 36, 24  # pixels: 9 x 6 patches, 3 x 2 embeddings
THETA = 100.0
TOWER = "model.encoder.vision_tower."


def pixels():
    """[height, width, 3], bytes."""
    return (values("image", HEIGHT * WIDTH * 3, 127, 64)).astype(np.uint8).reshape(HEIGHT, WIDTH, 3)


def patches():
    """[patches, patch * patch * 3] in [0, 1], and [patches, 2]: column and line."""
    side = VISION["patch_size"]
    lines, columns = HEIGHT // side, WIDTH // side
    cut = torch.from_numpy(pixels().astype(np.float64) / 255).reshape(lines, side, columns, side, 3)
    places = torch.tensor([[column, line] for line in range(lines) for column in range(columns)])
    return cut.permute(0, 2, 1, 3, 4).reshape(lines * columns, -1), places


def vision_layer(ck, x, layer, places):
    p, hidden, heads, d = f"{TOWER}encoder.layers.{layer}.", VISION["hidden_size"], VISION["num_attention_heads"], 16
    eps, inner = VISION["rms_norm_eps"], VISION["intermediate_size"]

    def norm(y, name):
        return rms_norm(y, ck.gain(p + name + ".weight", y.shape[-1]), eps)

    def linear(y, name, out):
        return y @ ck(f"{p}{name}.linear.weight", out, y.shape[-1]).T

    def axial(y):
        half = d // 2
        return torch.cat([turn(y[..., :half], places[:, 0], THETA, half // 2),
                          turn(y[..., half:], places[:, 1], THETA, half // 2)], -1)

    normed = norm(x, "input_layernorm")
    q, k, v = (linear(normed, f"self_attn.{part}_proj", heads * d).reshape(len(x), heads, d) for part in "qkv")
    q, k, v = axial(norm(q, "self_attn.q_norm")), axial(norm(k, "self_attn.k_norm")), rms_norm(v, 1.0, eps)
    weights = torch.softmax(torch.einsum("ihd,jhd->hij", q, k), -1)
    mixed = torch.einsum("hij,jhd->ihd", weights, v).reshape(len(x), heads * d)
    x = x + norm(linear(mixed, "self_attn.o_proj", hidden), "post_attention_layernorm")
    normed = norm(x, "pre_feedforward_layernorm")
    gated = gelu(linear(normed, "mlp.gate_proj", inner)) * linear(normed, "mlp.up_proj", inner)
    return x + norm(linear(gated, "mlp.down_proj", hidden), "post_feedforward_layernorm")


def features(ck):
    """[tokens, width of the language model]."""
    cut, places = patches()
    hidden, pool = VISION["hidden_size"], VISION["pooling_kernel_size"]
    table = ck(TOWER + "patch_embedder.position_embedding_table", 2, VISION["position_embedding_size"], hidden,
               scale=0.25)
    x = (2 * (cut - 0.5)) @ ck(TOWER + "patch_embedder.input_proj.weight", hidden, cut.shape[1]).T
    x = x + table[0][places[:, 0]] + table[1][places[:, 1]]
    for layer in range(VISION["num_hidden_layers"]):
        x = vision_layer(ck, x, layer, places)
    columns, lines = WIDTH // VISION["patch_size"], HEIGHT // VISION["patch_size"]
    x = x.reshape(lines // pool, pool, columns // pool, pool, hidden).mean((1, 3)).reshape(-1, hidden)
    x = x * math.sqrt(hidden)
    x = (x - ck(TOWER + "std_bias", hidden, scale=0.25)) * ck(TOWER + "std_scale", hidden, offset=1.0, scale=0.125)
    x = rms_norm(x, 1.0, VISION["rms_norm_eps"])
    return x @ ck("model.encoder.embed_vision.embedding_projection.weight", TEXT["hidden_size"], hidden).T


def prompt_ids(tokens):
    return IDS[:6] + [BEGIN] + [IMAGE] * tokens + [END] + IDS[6:10]


def start(ck, ties):
    """The model with its image, and the prompt."""
    rows = features(ck)
    model = Model(ck, ties)
    model.image, model.window = (7, rows), WINDOW
    return model, prompt_ids(len(rows)), rows


def single_passes(ties=True):
    chances, ck = Ties(), Checkpoint(ties=ties)
    model, prompt, rows = start(ck, chances)
    context = model(prompt, 0, False)
    canvas = model(NOISE, len(prompt), True)
    again = model(NOISE, len(prompt), True, torch.softmax(canvas / TEMPERATURE, -1))
    return ck, chances, prompt, rows, torch.cat([context, canvas, again])


def generations(ck, canvases=2):
    for options in OPTIONS[:2]:
        ties, sampler = Ties(), Sampler(options)
        model, prompt, _ = start(ck, ties)
        ids, passes = sampler.run(model, prompt, canvases)
        yield options, ids, passes, sampler.narrowest, ties.gap


def write(folder):
    ck, ties, prompt, rows, logits = single_passes()
    assert ties.gap > 1e-5, ties.gap
    runs = []
    for options, ids, passes, narrowest, gap in generations(ck):
        print(f"gemma-vision, seed {options['seed']}: {passes} passes, narrowest decision {narrowest:.1g}, {gap:.1g}")
        assert narrowest > 1e-3 and gap > 1e-5
        runs.append({"options": options, "canvases": 2, "passes": passes, "ids": ids})
    np.save(folder / "gemma-vision.npy", torch.cat([rows.reshape(-1), logits.reshape(-1)]).to(torch.float32).numpy())
    head = {"config": IMAGE_CONFIG, "input_ids": prompt, "image": {"width": WIDTH, "height": HEIGHT, "begin": 7,
                                                                  "tokens": len(rows)},
            "canvas": NOISE, "temperature": TEMPERATURE}
    text = "{" + json.dumps(head)[1:-1] + ',\n "generations": [\n  ' + ",\n  ".join(json.dumps(r) for r in runs)
    text += '],\n "tensors": [\n  ' + ",\n  ".join(json.dumps(entry) for entry in ck.listing) + "]}\n"
    (folder / "gemma-vision.json").write_text(text)
    print(f"gemma-vision: features up to {rows.abs().max():.2f}, logits up to {logits.abs().max():.2f}")


def differ(name, theirs, ours):
    worst = float((theirs.double() - ours).abs().max() / ours.abs().max())
    print(f"gemma-vision: transformers' {name} differ by {worst:.1e} of the largest")
    assert worst < 1e-5


def compare_with_transformers():
    ck, _, prompt, rows, expected = single_passes(ties=False)
    model = load_transformers(ck, IMAGE_CONFIG)
    cut, places = patches()
    kinds = torch.tensor([[1 if token == IMAGE else 0 for token in prompt]])
    images = {"pixel_values": cut[None], "image_position_ids": places[None]}
    encoder = model.model.encoder
    with torch.no_grad():
        differ("features", encoder.get_image_features(cut[None], places[None]).pooler_output, rows)
        ids = torch.tensor([prompt])
        mask = encoder.create_masks_for_generate(
            config=model.config, inputs_embeds=encoder.get_input_embeddings()(ids), attention_mask=None, cache=None,
            position_ids=torch.arange(len(prompt))[None], mm_token_type_ids=kinds)
        encoded = encoder(input_ids=ids, attention_mask=mask, **images)
        cap = model.final_logit_softcapping
        context = cap * torch.tanh(model.lm_head(encoded.last_hidden_state) / cap)
        cache = encoded.cache
        canvas = model(past_key_values=cache, decoder_input_ids=torch.tensor([NOISE])).logits
        again = model(past_key_values=cache, decoder_input_ids=torch.tensor([NOISE]),
                      self_conditioning_logits=canvas / TEMPERATURE).logits
    differ("logits", torch.cat([context[0], canvas[0], again[0]]), expected)
    for options, ids, passes, narrowest, _ in generations(ck):
        theirs = transformers_generation(model, options, 2, prompt, mm_token_type_ids=kinds, **images)
        print(f"gemma-vision, seed {options['seed']}: {passes} passes, narrowest decision {narrowest:.1g}; "
              f"transformers' generate() {'agrees' if theirs == (ids, passes) else 'DIFFERS'}")
        assert theirs == (ids, passes), (theirs, ids, passes)
