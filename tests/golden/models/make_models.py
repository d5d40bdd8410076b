#!/usr/bin/env python3
"""Golden logits of tiny checkpoints, one per architecture, for tests/models_test.cpp.

Each model is written down a second time, from its definition, in PyTorch and float64: references.py. Weights are a
function of tensor name and index, exact in every float type (tiny_values.py), so that the test builds the same
Hugging Face checkpoint without a file of weights: only the configuration, the list of tensors and the logits are
stored.

    python3 tests/golden/models/make_models.py        # needs torch and numpy; rewrites *.json and *.npy in its folder
    python3 tests/golden/models/make_models.py --transformers   # compares with transformers, where it has the model

Routers have experts and groups of experts with equal rows, so that choices hang on the rule for ties (lower index
first). The script checks that they do, and that every other choice is wide enough for float32.
"""

import json
import pathlib
import sys
import tempfile

import diffusion_gemma
import gemma_vision
import mdlm
import numpy as np
import torch
from references import IDS, MASK, ROWS, Checkpoint, Ties, llada2, nemotron, qwen_like, softmax_experts

HERE = pathlib.Path(__file__).parent

# A ramp of YaRN and a growth of queries that 14 positions show.
NEMOTRON_ROPE = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 4,
                 "beta_fast": 0.3, "beta_slow": 0.02, "mscale": 1.0, "mscale_all_dim": 0.5,
                 "llama_4_scaling_beta": 0.1}
LORA_RANK, LORA_SCALE = 8, 4.0


def lora(layer):
    """The draft adapter of the published checkpoints: o_proj alone, scale = alpha / rank."""
    p = f"base_model.model.encoder.layers.{layer}.self_attn.o_proj."
    a = Checkpoint()
    return a(p + "lora_A.weight", LORA_RANK, 128), a(p + "lora_B.weight", 64, LORA_RANK), LORA_SCALE


def write_nemotron_variants(config):
    """What the checkpoint says causally, and with the adapter in both directions."""
    for name, block, adapter in (("causal", 1, None), ("lora", 0, lora), ("causal-lora", 1, lora)):
        logits = nemotron(Checkpoint(), config, IDS, block, adapter)
        np.save(HERE / f"nemotron-{name}.npy", logits.to(torch.float32).numpy())


def config_of(architecture, **more):
    return {"architectures": [architecture], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": ROWS, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu", **more}


QWEN_MOE = {"head_dim": 32, "intermediate_size": 96, "moe_intermediate_size": 32, "num_experts": 8,
            "num_experts_per_tok": 3, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
LLADA2 = {"num_hidden_layers": 3, "head_dim": 32, "intermediate_size": 96, "moe_intermediate_size": 32,
          "num_experts": 16, "num_experts_per_tok": 4, "num_shared_experts": 1, "n_group": 4, "topk_group": 2,
          "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "partial_rotary_factor": 0.5, "use_qk_norm": True,
          "use_qkv_bias": False, "use_bias": False, "norm_topk_prob": True, "score_function": "sigmoid",
          "moe_router_enable_expert_bias": True, "mask_token_id": MASK}


def models():
    """name, configuration, forward(checkpoint, ties, configuration, ids), and whether choices must depend on ties"""

    def qwen(block, **kind):
        return lambda ck, ties, c, ids: qwen_like(ck, c, ids, block, **kind)

    def qwen_moe(block):
        return lambda ck, ties, c, ids: qwen_like(
            ck, c, ids, block, qk_norm=True, ffn=softmax_experts(ck, ties, c, c["moe_intermediate_size"], True))

    def llada_moe(ck, ties, c, ids):
        return qwen_like(ck, c, ids, 0, qk_norm=True,
                         ffn=softmax_experts(ck, ties, c, c["expert_intermediate_size"], False))

    mask = {"mask_token_id": MASK}
    yield "llada-moe", config_of("LLaDAMoEModelLM", rms_norm_eps=1e-5, num_key_value_heads=4, intermediate_size=96,
                                 expert_intermediate_size=32, num_experts=8, num_experts_per_tok=3,
                                 moe_layer_freq=[1, 1], qk_layernorm=True, attention_bias=False, **mask), llada_moe
    yield "llada2", config_of("LLaDA2MoeModelLM", block_size=4, **LLADA2), llada2
    yield "llada2.2", config_of("LLaDA2MoeModelLM", block_size=4, expert_capacity=6, **LLADA2), llada2
    yield "rnd1", config_of("RND1LM", rope_scaling=False, **QWEN_MOE, **mask), qwen_moe(0)
    yield "sdar", config_of("SDARForCausalLM", head_dim=32, intermediate_size=96, **mask), qwen(4, qk_norm=True)
    yield "sdar-moe", config_of("SDARMoeForCausalLM", block_size=8, **QWEN_MOE, **mask), qwen_moe(8)
    yield "fast-dllm-v2", config_of("Fast_dLLM_QwenForCausalLM", bd_size=8, intermediate_size=96, **mask), qwen(
        8, bias=True)
    yield "qwen2", config_of("Qwen2ForCausalLM", intermediate_size=96), qwen(1, bias=True)
    tied = {"tie_word_embeddings": True}
    yield "qwen3", config_of("Qwen3ForCausalLM", head_dim=32, intermediate_size=96) | tied, qwen(1, qk_norm=True)
    nemotron_config = config_of("NemotronLabsDiffusionModel", rms_norm_eps=1e-5, head_dim=32, intermediate_size=96,
                                block_size=8, rope_parameters=NEMOTRON_ROPE, **mask)
    del nemotron_config["rope_theta"]
    yield "nemotron", nemotron_config, lambda ck, ties, c, ids: nemotron(ck, c, ids, 0)
    yield "qwen3moe", config_of("Qwen3MoeForCausalLM", **QWEN_MOE), qwen_moe(1)
    yield "mdlm", mdlm.CONFIG | {"vocab_size": ROWS} | mask, lambda ck, ties, c, ids: mdlm.forward(ck, c, ids, ROWS)


def compare_with_transformers():
    """transformers' autoregressive models, from the same tensors; without ties, whose order it does not define."""
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    for name, config, forward in models():
        if not name.startswith("qwen"):
            continue
        ck = Checkpoint(ties=False)
        expected = forward(ck, {"experts": Ties(), "groups": Ties()}, config, IDS)
        kind = {"qwen3moe": "qwen3_moe"}.get(name, name)
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory)
            (path / "config.json").write_text(json.dumps(config | {"model_type": kind}))
            save_file({n: t.contiguous() for n, t in ck.tensors.items()}, path / "model.safetensors", {"format": "pt"})
            model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64, attn_implementation="eager",
                                                         experts_implementation="eager")
        with torch.no_grad():
            logits = model(torch.tensor([IDS])).logits[0]
        worst = float((logits - expected).abs().max() / expected.abs().max())
        print(f"{name}: transformers' logits differ by {worst:.1e} of the largest")
        assert worst < 1e-5, name
    diffusion_gemma.compare_with_transformers()
    gemma_vision.compare_with_transformers()


def main():
    if "--transformers" in sys.argv[1:]:
        return compare_with_transformers()
    diffusion_gemma.write(HERE)
    gemma_vision.write(HERE)
    for name, config, forward in models():
        ck, ties = Checkpoint(), {"experts": Ties(), "groups": Ties()}
        logits = forward(ck, ties, config, IDS)
        counts = {kind: tie.count for kind, tie in ties.items()}
        gap = min(tie.gap for tie in ties.values())
        if "num_experts" in config:
            assert counts["experts"] > 0, f"{name}: no choice of experts hangs on a tie"
            assert gap > 1e-5, f"{name}: a choice is narrow, {gap}"
        if "n_group" in config:
            assert counts["groups"] > 0, f"{name}: no choice of groups or pools hangs on a tie"
        if name == "nemotron":
            write_nemotron_variants(config)
        np.save(HERE / f"{name}.npy", logits.to(torch.float32).numpy())
        text = {"config": config, "input_ids": IDS, "ties": counts, "tensors": ck.listing}
        lines = ",\n  ".join(json.dumps(entry) for entry in ck.listing)
        head = json.dumps({k: text[k] for k in ("config", "input_ids", "ties")})[1:-1]
        (HERE / f"{name}.json").write_text("{" + head + ',\n "tensors": [\n  ' + lines + "]}\n")
        print(f"{name}: ties {counts}, narrowest choice {gap:.2g}, logits up to {logits.abs().max():.2f}")


if __name__ == "__main__":
    main()
