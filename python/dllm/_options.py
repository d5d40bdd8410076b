"""The keyword arguments of a generation and of a load. Written by scripts/python_options.py: do not edit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class Options(TypedDict, total=False):
    """Every option of dllm.options(). None means: not given."""

    #: positions after the window that are recomputed with it
    after_look: int | None
    #: which positions a step commits
    algorithm: Literal[
        "low-confidence",
        "random",
        "threshold",
        "factor",
        "origin",
        "maskgit-plus",
        "topk-margin",
        "entropy",
        "margin",
        "entropy-bound",
        "low-entropy",
        "entropy-exit",
        "llada2",
        "sdar-sequential",
        "sdar-static",
        "sdar-dynamic",
        "credit",
        "hierarchical",
        "hierarchical-remask",
        "draft-edit",
        "levenshtein",
        "revision",
        "wino",
        "cover",
        "klass",
        "t2m",
        "freedave",
        "order-token",
        "s2d2",
        "dmax",
        "wedlm",
        "native",
        "confidence-ref",
        "cumulative-error",
        "confidence-bound",
    ] | None
    #: randomness of the choice of positions; 0: none
    algorithm_temperature: float | None
    #: relative increase of a step's cost that a wider window may cause
    allowance: float | None
    #: other tokens, and other positions, that an unsure state continues with
    alternatives: int | None
    #: of a block that are kept, and forwarded together
    beams: int | None
    #: decided share of the last block at which the next one begins; 1: one block at a time
    begin_share: float | None
    #: length of a block; blocks are decoded one after another
    block_length: int | None
    #: where the first block begins
    block_origin: Literal["prompt-end", "absolute"] | None
    #: the last of them commits all of a block
    block_passes: int | None
    #: K/V rows kept between steps
    cache: Literal[
        "none",
        "prefix",
        "dual",
        "vicinity",
        "delayed",
        "delayed-greedy",
        "delayed-pd",
        "partial",
        "entropy",
        "block-causal",
    ] | None
    #: recompute a row for this many passes after its token is committed
    cache_delay: int | None
    #: full passes at the beginning of an answer
    cache_warmup: int | None
    #: classifier-free guidance, two forward passes per step; 0: off
    cfg_scale: float | None
    #: a check is made if it promises more tokens per pass than the threshold rule, at this cost
    check_cost: float | None
    #: most that a check reads
    checked_tokens: int | None
    #: behave like the reference implementation where dllm differs
    compat: bool | None
    #: maximum length of prompt and canvas together
    context: int | None
    #: weight of the accumulated credit; 0: the threshold rule
    credit_alpha: float | None
    #: share of the credit that is kept from one step to the next
    credit_beta: float | None
    #: exponent of the confidence that is added to the credit
    credit_gamma: float | None
    #: commit end-of-sequence tokens last (LLaDA's confidence_eos_eot_inf)
    defer_eos: bool | None
    #: token id that deletes its position when predicted
    delete_token: int | None
    #: confidence of a predicted line break at which a block ends with it
    delimiter_confidence: float | None
    #: share of the answer in which line breaks are looked for
    delimiter_reach: float | None
    #: penalty per position between the first mask and this one
    distance_penalty: float | None
    #: accept a draft when its block's first pass confirms it, or at once
    draft_acceptance: Literal["recheck", "instant"] | None
    #: a pass of the draft keeps tokens of this confidence, at least one; 0: all, in one pass
    draft_confidence: float | None
    #: the draft ends in front of a token that is less sure than this; the answer is the same
    draft_cut: float | None
    #: cost of a pass. nominal: of no machine; a file of dllm bench latency; auto: measured here and kept
    draft_latency: str | None
    #: widest draft; a drafter's block bounds it too
    draft_max: int | None
    #: narrowest draft, its known first token too
    draft_min: int | None
    #: width by what became of the last draft, or for the most tokens per millisecond; the answer is the same
    draft_objective: Literal["acceptance", "rate"] | None
    #: confidence from which a draft is accepted
    draft_threshold: float | None
    #: guessed, and forwarded together with the next one
    drafts: int | None
    #: these passes recompute every row (--cache prefix, dual, vicinity)
    drain_full: bool | None
    #: passes that score visible tokens again when no mask is left
    drain_rounds: int | None
    #: visible tokens scored by each of these last passes
    drain_rows: int | None
    #: finished blocks before the current one that are edited too (multi-block editing)
    edit_blocks: int | None
    #: replace a token if another reaches this confidence
    edit_threshold: float | None
    #: largest sum of the entropies that a step commits
    entropy_bound: float | None
    #: commit positions of lower entropy at once
    entropy_threshold: float | None
    #: last timestep of the schedule, which starts at 1
    eps: float | None
    #: decode every position: do not stop at end-of-sequence tokens
    exact_length: bool | None
    #: Fast-dLLM's factor: a larger one commits more per step; with --compat as upstream computes it
    factor: float | None
    #: if no token reaches a threshold, the most confident one becomes final instead of visible
    force_stable: bool | None
    #: subtract this from a token's logit for each time that the answer contains it; 0: off
    frequency_penalty: float | None
    #: positions at the end of the answer that should predict its end
    grow_check: int | None
    #: positions of the answer that are seen first
    grow_initial: int | None
    #: masks in place of one of low confidence; 1: none are inserted
    grow_insert: int | None
    #: confidence below which masks are inserted
    grow_insert_below: float | None
    #: confidence in the answer's end from which no masks are inserted
    grow_insert_until: float | None
    #: positions that are added while no end is in sight
    grow_step: int | None
    #: their confidence at which the answer is long enough
    grow_threshold: float | None
    #: tokens are read as they are
    hard_tokens: bool | None
    #: token id that inserts a mask before its position when predicted
    insert_token: int | None
    #: the answer is JSON that this JSON Schema accepts
    json_schema: str | Mapping[str, Any] | type[Any] | None
    #: shifted models: forward the row before the window, which predicts its first position, only once per
    #: window
    keep_front: bool | None
    #: how many passes in a row it must have been stable
    kl_history: int | None
    #: a distribution that changes less is stable
    kl_threshold: float | None
    #: likeliest tokens whose probabilities are compared
    kl_tokens: int | None
    #: cost of a step. nominal: the same on every machine; a file of dllm bench latency: as measured; auto:
    #: measured on this machine and stored, so answers may differ between machines
    latency: str | None
    #: tokens before the window are scored with the mask in their place
    leave_one_out: bool | None
    #: length of the canvas: masks after the prompt, which the model reads as the length of the answer
    length: int | None
    #: add to the logits of tokens: ID+BIAS or ID-BIAS, separated by commas; -inf: never
    logit_bias: str | None
    #: draft when the block has at most this many left; 0: never
    lookahead_masks: int | None
    #: commit positions of at most this entropy, and the most certain one
    low_entropy: float | None
    #: commit the best of each run of neighbouring masks above this confidence
    low_threshold: float | None
    #: passes that may edit a block after its last mask
    max_post_steps: int | None
    #: how often a position may become a mask again
    max_remasks: int | None
    #: maximum number of token changes per position
    max_revisions: int | None
    #: maximum length of the answer; -1: as the context allows. It cuts the answer, or lets it go on after the
    #: canvas, and changes no word before
    max_tokens: int | None
    #: widest window, drafts included
    max_window: int | None
    #: steps from the launch until its results are merged
    merge_delay: int | None
    #: sample from the tokens with at least this part of the likeliest one's probability; 0: off
    min_p: float | None
    #: confidence below which the factor rule does not help
    min_threshold: float | None
    #: likeliest tokens that a mixture has
    mixed_tokens: int | None
    #: how a model decodes that was trained for several ways
    mode: Literal["self-speculation", "ar", "diffusion", "slots"] | None
    #: of a block: tokens may alternate
    most_passes: int | None
    #: how often a position of a block may become a mask again
    most_remasks: int | None
    #: tokens that one pass judges at most
    most_seeds: int | None
    #: commit positions whose entropy and penalty are below this together, at least the best
    near_entropy: float | None
    #: commit so many masks per pass at least, even below the threshold (LLaDA2.1)
    num_to_transfer: int | None
    #: widen while a step stays within --allowance, or to the most commits per millisecond
    objective: Literal["allowance", "rate"] | None
    #: subtracted from the logit of the previous position's token, against repetition
    penalty_lambda: float | None
    #: positions before the window that are recomputed with it
    prefix_look: int | None
    #: subtract this from the logits of tokens that the answer contains; 0: off
    presence_penalty: float | None
    #: a named set of options, which those given override
    preset: Literal["exact", "balanced", "fast", "frugal", "swift"] | None
    #: recompute the prompt every N passes
    prompt_interval: int | None
    #: recompute that many of the latest committed tokens in the other passes
    recent_rows: int | None
    #: make a full pass for every block, or only for the first
    refresh: Literal["block", "once"] | None
    #: make a full pass after one that committed a token whose prediction had a larger entropy
    refresh_entropy: float | None
    #: make a full pass every N passes
    refresh_interval: int | None
    #: results are used after --merge-delay steps (the same tokens in every run), or as soon as they are ready
    refresh_merge: Literal["fixed", "ready"] | None
    #: which of them first: changed and longest unscored, the least confident, or the leftmost
    refresh_order: Literal["stale", "unsure", "position"] | None
    #: score them in the window's pass, or concurrently on separate threads
    refresh_path: Literal["folded", "second"] | None
    #: visible tokens before the window that each pass scores again; 0: none
    refresh_rows: int | None
    #: what they attend to on the second path: everything, or only what precedes the window
    refresh_sees: Literal["all", "prefix"] | None
    #: share of the answer that the other passes recompute
    refresh_share: float | None
    #: threads of the second path, in addition to --threads
    refresh_threads: int | None
    #: the whole answer matches this regular expression
    regex: str | None
    #: share of a block's tokens that a pass takes back at most
    remask_share: float | None
    #: turn committed tokens back into masks if the prediction there is less probable
    remask_threshold: float | None
    #: visible tokens of the window below --remask-threshold become masks again
    remask_visible: bool | None
    #: when a token changes, final tokens decided after it become visible again
    reopen: bool | None
    #: divide the logits of tokens that prompt or answer contain (multiply negative ones); 1: off
    repetition_penalty: float | None
    #: recompute the whole answer every N passes
    response_interval: int | None
    #: confidence from which a likelier token replaces a visible one
    revise_threshold: float | None
    #: the algorithm whose passes are guessed
    rule: Literal["low-confidence", "threshold"] | None
    #: show the best of each run of neighbouring masks above this confidence too
    run_threshold: float | None
    #: how the commits are distributed over the steps
    schedule: Literal["cosine", "linear"] | None
    #: seed of all random draws; -1: a different seed each time
    seed: int | None
    #: stop recomputing a committed row of the block after this many passes
    settle: int | None
    #: the model reads drafts above the threshold instead of masks
    show_drafts: bool | None
    #: committed positions leave the window at once, not one pass later
    slide_at_once: bool | None
    #: of a slot
    slot_length: int | None
    #: slots whose first token is surer than this are filled next, at least the surest
    slot_threshold: float | None
    #: largest weight of the expected embedding that is added to a mask (dInfer: 0.3); 0: off
    smooth: float | None
    #: weight after the first pass
    smooth_first: float | None
    #: per pass, the weight grows and the threshold falls by this, from 1 down to --threshold
    smooth_step: float | None
    #: likeliest tokens that the expectation sums over; 0: the whole vocabulary
    smooth_top: int | None
    #: at temperature 0, accept by min(1, q / p) of the probabilities instead of the same arg-max
    soft_acceptance: bool | None
    #: confidence from which a token is final
    stable_threshold: float | None
    #: denoising steps over the whole answer
    steps: int | None
    #: texts that end the answer
    stop: str | Sequence[str] | None
    #: masks after the window that the model sees
    suffix: Literal["full", "near", "sparse", "grow", "none"] | None
    #: masks after the window that the model sees; of sparse, all of those
    suffix_near: int | None
    #: never choose end-of-sequence tokens (LLaDA's logits_eos_inf)
    suppress_eos: bool | None
    #: a block ends when all of its tokens have this probability, or none changes
    sure_threshold: float | None
    #: which tokens become masks again: those of a low probability, those that a confident other token would
    #: replace, or those whose probability has fallen
    suspect: Literal["unlikely", "overruled", "falling"] | None
    #: bound of that rule
    suspect_bound: float | None
    #: randomness of the tokens; 0: greedy
    temperature: float | None
    #: confidence from which positions are committed together; above 1: only the best
    threshold: float | None
    #: probability, without itself in the input, below which a token of the block becomes a mask again
    threshold_back: float | None
    #: tokens of a slot stand up to the first that is not surer than this
    token_threshold: float | None
    #: the answer is calls of these tools, or what another structure says, and nothing else
    tool_calls: str | None
    #: sample from the k likeliest tokens; 0: off
    top_k: int | None
    #: sample from the likeliest tokens of this total probability; 1: off
    top_p: float | None
    #: probability, without itself in the input, below which a token becomes a mask again
    verify_threshold: float | None
    #: confidence from which a token is shown; it is scored again until it is final
    visible_threshold: float | None
    #: positions that compete in a step
    window: Literal["block", "semantic", "whole", "sliding", "adaptive", "lookahead", "pipeline"] | None


class LoadOptions(TypedDict, total=False):
    """Every option of dllm.load_options(). None means: not given."""

    #: arithmetic against quantized weights; if left out: int8
    activations: Literal["int8", "f32"] | None
    #: rounding of products with weights; super: designed for matrix tiles; residual: more exact, twice the
    #: work; auto: super on matrix tiles unless the model is autoregressive, else exact; f16: F16 and BF16
    #: weights on the matrix units of a GPU; if left out: exact
    arithmetic: Literal["exact", "super", "residual", "auto", "f16"] | None
    #: rounding of the products of attention; auto: bf16 with quantized weights where this machine is faster at
    #: it; if left out: f32
    attention_arithmetic: Literal["f32", "bf16", "auto"] | None
    #: where the model runs; cpu: this processor; npu: a simulated NPU, in its number formats and its virtual
    #: time; vulkan: a GPU, through Vulkan; ranks: this processor and those of workers, each with a part of the
    #: model; if left out: cpu
    backend: Literal["cpu", "npu", "vulkan", "ranks"] | None
    #: storage of K and V; if left out: f32 for F32 models, else f16
    cache_type: Literal["f32", "f16", "bf16", "q8_0", "q4_0"] | None
    #: what it runs on there, as --list-devices names it; with --backend npu, a profile of an NPU, by name or
    #: file; with --backend vulkan, a GPU, by index or name; if left out: the backend's default
    device: str | os.PathLike[str] | None
    #: change one key of that profile, e.g. numerics.weight=mxint8:32:ocp; may be repeated (--set)
    device_changes: str | Sequence[str] | None
    #: what makes the drafts of --mode self-speculation: a drafter (DFlash) that was trained for the model, or
    #: the same model in a cheaper quantization; if left out: the model itself
    draft_model: str | os.PathLike[str] | None
    #: so many of the model's last layers run on the GPU, with the head, and the others on this processor; 0:
    #: all layers run on this processor; as many as the model has, or more: all run on the GPU; if left out: all
    #: on the GPU, or an error if it has no room
    gpu_layers: int | None
    #: kernel set; 'list' shows the sets that this machine supports; if left out: the best
    isa: str | None
    #: when a rank is lost, serve goes on with so many, this one included; if left out: those whose memory holds
    #: the model
    least_ranks: str | None
    #: low-rank adapter, a GGUF file or a PEFT folder; may be repeated
    lora: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    #: the same for drafts only, with --mode; may be repeated
    lora_draft: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    #: vision tower of the model, a GGUF file or the Hugging Face folder that has it, for prompts with images;
    #: if left out: none: prompts have no images
    mmproj: str | os.PathLike[str] | None
    #: the device's LM head computes every row, not only those that are scored (--all-logits)
    npu_all_logits: bool | None
    #: without the device's memory runtime: weights outside its window are paged (--no-somr)
    npu_paging: bool | None
    #: whose virtual time counts: the device's, or that of its host alone; if left out: device
    npu_processor: Literal["device", "host"] | None
    #: what times the device's operators: a model of costs, or the cycle-accurate simulator (seconds to minutes
    #: for each shape of a step, kept in the cache); if left out: analytic
    npu_timing: Literal["analytic", "simulated"] | None
    #: what computes the values of --backend npu, which are the same: machine runs the compiled programs; if
    #: left out: executor
    npu_values: Literal["executor", "machine"] | None
    #: run in the number formats of a profile: bf16, w4a8kv4, mxfp8, ...; if left out: the file's own
    numerics: str | os.PathLike[str] | None
    #: context of the training, for --rope-scaling; if left out: the file's
    rope_original_context: int | None
    #: how many times as long contexts become under --rope-scaling; if left out: not given
    rope_scale: float | None
    #: positions for contexts beyond those of training, by --rope-scale; if left out: the file's
    rope_scaling: Literal["none", "linear", "ntk", "yarn"] | None
    #: how ranks share the work: outputs of products, rows of a step, or layers; if left out: auto
    split: Literal["auto", "outputs", "rows", "layers"] | None
    #: worker threads; if left out: one per CPU
    threads: int | None
    #: run up to so many passes in a row before this processor looks at them, where the algorithm is threshold
    #: or low-confidence; the answer is the same; takes memory for the embeddings of all tokens; if left out: 1:
    #: it looks at every pass
    unroll: int | None
    #: store packed weights in this file and map it in later runs; auto: <model>.dllm-packed
    weight_cache: str | os.PathLike[str] | None
    #: the other ranks: where 'dllm worker' listens, separated by commas; mpi for those that mpirun or srun has
    #: started; implies --backend ranks
    workers: str | None
    #: a file with the secret line that the workers have too; if left out: none, for workers on this machine
    #: only
    workers_key: str | os.PathLike[str] | None
