// Facts about published checkpoints: their config.json and special tokens. An entry is complete when shape_test.cpp has
// its number of parameters.
#include "model/shape.h"

namespace dllm {
namespace {

std::vector<ShapeToken> llada_tokens() {
  return {{"bos", 126080, "<|startoftext|>"},
          {"eos", 126081, "<|endoftext|>"},
          {"padding", 126081, "<|endoftext|>"},
          {"mask", 126336, "<|mdm_mask|>"},
          {"eot", 126348, "<|eot_id|>"}};
}

std::vector<ShapeToken> dream_tokens() {
  return {{"eos", 151643, "<|endoftext|>"},
          {"padding", 151643, "<|endoftext|>"},
          {"eot", 151645, "<|im_end|>"},
          {"bos", 151665, "<|beginoftext|>"},
          {"mask", 151666, "<|mask|>"}};
}

std::vector<ShapeToken> llama3_tokens() {
  return {{"bos", 128000, "<|begin_of_text|>"}, {"eos", 128001, "<|end_of_text|>"}, {"eot", 128009, "<|eot_id|>"}};
}

/// LLaDA-MoE and LLaDA2. The id of <|role_end|> is inferred from the tokenizer's family; files are read by its text.
std::vector<ShapeToken> bailing_tokens() {
  return {{"eos", 156892, "<|endoftext|>"},
          {"padding", 156892, "<|endoftext|>"},
          {"mask", 156895, "<|mask|>"},
          {"eot", 156900, "<|role_end|>"}};
}

/// Qwen's tokens, and the mask that a diffusion model derived from it has added; none: autoregressive.
std::vector<ShapeToken> qwen_tokens(std::int64_t mask = 0, std::string_view text = "") {
  std::vector<ShapeToken> tokens = {{"padding", 151643, "<|endoftext|>"}, {"eos", 151645, "<|im_end|>"}};
  if (mask != 0) tokens.push_back({"mask", mask, text});
  return tokens;
}
std::vector<ShapeToken> sdar_tokens() { return qwen_tokens(151669, "<|MASK|>"); }
std::vector<ShapeToken> fast_dllm_tokens() { return qwen_tokens(151665, "|<MASK>|"); }
std::vector<ShapeToken> a2d_tokens() { return qwen_tokens(151669, "<|mask|>"); }
std::vector<ShapeToken> refusion_tokens() { return qwen_tokens(151670, "<|MASK|>"); }
std::vector<ShapeToken> a2d_llama_tokens() {
  std::vector<ShapeToken> tokens = llama3_tokens();
  tokens.push_back({"mask", 128256, "<|mask|>"});
  return tokens;
}
/// The published ids (eos 2, mask 5) are those of bytes in the made-up tokenizer.
std::vector<ShapeToken> diffcoder_tokens() {
  return {
      {"bos", 155133, "<[begin▁of▁sentence]>"}, {"eos", 155134, "<[end▁of▁sentence]>"}, {"mask", 155135, "<[MASK]>"}};
}
std::vector<ShapeToken> rnd1_tokens() { return qwen_tokens(151669, "<|mask|>"); }

/// Its own tokens at the end of the vocabulary: Gemma's ids (0, 1, 2, 106) are those of bytes in the made-up
/// tokenizer.
std::vector<ShapeToken> gemma_tokens() {
  return {{"padding", 262140, "<pad>"}, {"eos", 262141, "<eos>"}, {"bos", 262142, "<bos>"}, {"eot", 262143, "<turn|>"}};
}

constexpr std::string_view kLlada8b = R"({
  "architectures": ["LLaDAModelLM"],
  "d_model": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 32, "mlp_hidden_size": 12288,
  "embedding_size": 126464, "max_sequence_length": 4096, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
  "weight_tying": false})";

constexpr std::string_view kDream7b = R"({
  "architectures": ["DreamModel"],
  "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
  "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
  "rope_theta": 1000000.0, "tie_word_embeddings": false})";

constexpr std::string_view kLlama38b = R"({
  "architectures": ["LlamaForCausalLM"],
  "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
  "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
  "rope_theta": 500000.0, "tie_word_embeddings": false})";

constexpr std::string_view kLladaMoe7b = R"({
  "architectures": ["LLaDAMoEModelLM"],
  "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
  "intermediate_size": 8192, "expert_intermediate_size": 1024, "num_experts": 64, "num_experts_per_tok": 8,
  "vocab_size": 157184, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 50000.0,
  "tie_word_embeddings": false})";

constexpr std::string_view kLlada2Mini = R"({
  "architectures": ["LLaDA2MoeModelLM"],
  "hidden_size": 2048, "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
  "intermediate_size": 5120, "moe_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8,
  "num_shared_experts": 1, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5, "first_k_dense_replace": 1,
  "partial_rotary_factor": 0.5, "vocab_size": 157184, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
  "rope_theta": 600000.0, "tie_word_embeddings": false})";

constexpr std::string_view kRnd1 = R"({
  "architectures": ["RND1LM"],
  "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
  "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
  "num_experts_per_tok": 8, "norm_topk_prob": true, "vocab_size": 151936, "max_position_embeddings": 40960,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": false})";

constexpr std::string_view kSdar1b7 = R"({
  "architectures": ["SDARForCausalLM"],
  "hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
  "head_dim": 128, "intermediate_size": 6144, "vocab_size": 151936, "max_position_embeddings": 32768,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": true})";

constexpr std::string_view kSdar4b = R"({
  "architectures": ["SDARForCausalLM"],
  "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
  "head_dim": 128, "intermediate_size": 9728, "vocab_size": 151936, "max_position_embeddings": 32768,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": true})";

constexpr std::string_view kSdar8b = R"({
  "architectures": ["SDARForCausalLM"],
  "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
  "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936, "max_position_embeddings": 32768,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": false})";

/// At the end of the vocabulary: the published ids (1, 11, 100) are those of bytes in the made-up tokenizer.
std::vector<ShapeToken> nemotron_tokens() {
  return {{"bos", 131069, "<s>"}, {"eos", 131070, "</s>"}, {"mask", 131071, "<SPECIAL_MASK>"}};
}

constexpr std::string_view kSdar30b = R"({
  "architectures": ["SDARMoeForCausalLM"],
  "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
  "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
  "num_experts_per_tok": 8, "norm_topk_prob": true, "vocab_size": 151936, "max_position_embeddings": 32768,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": false})";

constexpr std::string_view kFastDllm1b5 = R"({
  "architectures": ["Fast_dLLM_QwenForCausalLM"],
  "hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2,
  "intermediate_size": 8960, "vocab_size": 151936, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "tie_word_embeddings": true})";

constexpr std::string_view kFastDllm7b = R"({
  "architectures": ["Fast_dLLM_QwenForCausalLM"],
  "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
  "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "tie_word_embeddings": false})";

constexpr std::string_view kQwen25_7b = R"({
  "architectures": ["Qwen2ForCausalLM"],
  "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
  "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "tie_word_embeddings": false})";

constexpr std::string_view kQwen3_4b = R"({
  "architectures": ["Qwen3ForCausalLM"],
  "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
  "head_dim": 128, "intermediate_size": 9728, "vocab_size": 151936, "max_position_embeddings": 40960,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": true})";

constexpr std::string_view kQwen3_30b = R"({
  "architectures": ["Qwen3MoeForCausalLM"],
  "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
  "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
  "num_experts_per_tok": 8, "norm_topk_prob": true, "vocab_size": 151936, "max_position_embeddings": 40960,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": false})";

// Small models of the same kinds. Their vocabularies end before the published special tokens, which move to the end.
constexpr std::string_view kLladaTiny = R"({
  "architectures": ["LLaDAModelLM"],
  "d_model": 256, "n_layers": 2, "n_heads": 4, "n_kv_heads": 4, "mlp_hidden_size": 512,
  "embedding_size": 1024, "max_sequence_length": 1024, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
  "weight_tying": false})";

constexpr std::string_view kLlada100m = R"({
  "architectures": ["LLaDAModelLM"],
  "d_model": 768, "n_layers": 12, "n_heads": 12, "n_kv_heads": 12, "mlp_hidden_size": 2048,
  "embedding_size": 16384, "max_sequence_length": 2048, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
  "weight_tying": true})";

constexpr std::string_view kDreamTiny = R"({
  "architectures": ["DreamModel"],
  "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
  "intermediate_size": 768, "vocab_size": 1024, "max_position_embeddings": 1024, "rms_norm_eps": 1e-6,
  "rope_theta": 1000000.0, "tie_word_embeddings": false})";

constexpr std::string_view kLlamaTiny = R"({
  "architectures": ["LlamaForCausalLM"],
  "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
  "intermediate_size": 768, "vocab_size": 1024, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
  "rope_theta": 500000.0, "tie_word_embeddings": true})";

constexpr std::string_view kLladaMoeTiny = R"({
  "architectures": ["LLaDAMoEModelLM"],
  "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
  "intermediate_size": 512, "expert_intermediate_size": 256, "num_experts": 16, "num_experts_per_tok": 4,
  "vocab_size": 1024, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "rope_theta": 50000.0,
  "tie_word_embeddings": false})";

constexpr std::string_view kLlada2Tiny = R"({
  "architectures": ["LLaDA2MoeModelLM"],
  "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32,
  "intermediate_size": 512, "moe_intermediate_size": 256, "num_experts": 32, "num_experts_per_tok": 4,
  "num_shared_experts": 1, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5, "first_k_dense_replace": 1,
  "partial_rotary_factor": 0.5, "vocab_size": 1024, "max_position_embeddings": 1024, "rms_norm_eps": 1e-6,
  "rope_theta": 600000.0, "tie_word_embeddings": false})";

constexpr std::string_view kRnd1Tiny = R"({
  "architectures": ["RND1LM"],
  "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32,
  "intermediate_size": 512, "moe_intermediate_size": 256, "num_experts": 16, "num_experts_per_tok": 4,
  "norm_topk_prob": true, "vocab_size": 1024, "max_position_embeddings": 1024, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "tie_word_embeddings": false})";

constexpr std::string_view kSdarTiny = R"({
  "architectures": ["SDARForCausalLM"],
  "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32,
  "intermediate_size": 512, "vocab_size": 1024, "max_position_embeddings": 1024, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "tie_word_embeddings": true})";

constexpr std::string_view kFastDllmTiny = R"({
  "architectures": ["Fast_dLLM_QwenForCausalLM"],
  "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
  "intermediate_size": 512, "vocab_size": 1024, "max_position_embeddings": 1024, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "tie_word_embeddings": true})";

constexpr std::string_view kDiffusionGemma = R"({
  "architectures": ["DiffusionGemmaForBlockDiffusion"], "canvas_length": 256, "tie_word_embeddings": true,
  "text_config": {
    "hidden_size": 2816, "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
    "global_head_dim": 512, "num_global_key_value_heads": 2, "intermediate_size": 2112, "moe_intermediate_size": 704,
    "num_experts": 128, "top_k_experts": 8, "sliding_window": 1024, "vocab_size": 262144,
    "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "final_logit_softcapping": 30.0}})";

constexpr std::string_view kDiffusionGemmaTiny = R"({
  "architectures": ["DiffusionGemmaForBlockDiffusion"], "canvas_length": 16, "tie_word_embeddings": true,
  "text_config": {
    "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "global_head_dim": 64, "num_global_key_value_heads": 1, "intermediate_size": 256, "moe_intermediate_size": 256,
    "num_experts": 8, "top_k_experts": 2, "sliding_window": 32, "vocab_size": 1024, "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6, "final_logit_softcapping": 30.0}})";

constexpr std::string_view kNemotron8b = R"({
  "architectures": ["NemotronLabsDiffusionModel"],
  "hidden_size": 4096, "num_hidden_layers": 34, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
  "intermediate_size": 14336, "vocab_size": 131072, "max_position_embeddings": 262144, "rms_norm_eps": 1e-5,
  "block_size": 32, "tie_word_embeddings": false,
  "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "original_max_position_embeddings": 16384, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}})";

/// Widths and depths of Ministral 3, from which the models were trained; unlike Ministral 3 3B, the head is not tied.
constexpr std::string_view kNemotron3b = R"({
  "architectures": ["NemotronLabsDiffusionModel"],
  "hidden_size": 3072, "num_hidden_layers": 26, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
  "intermediate_size": 9216, "vocab_size": 131072, "max_position_embeddings": 262144, "rms_norm_eps": 1e-5,
  "block_size": 32, "tie_word_embeddings": false,
  "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "original_max_position_embeddings": 16384, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}})";

constexpr std::string_view kNemotron14b = R"({
  "architectures": ["NemotronLabsDiffusionModel"],
  "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
  "intermediate_size": 16384, "vocab_size": 131072, "max_position_embeddings": 262144, "rms_norm_eps": 1e-5,
  "block_size": 32, "tie_word_embeddings": false,
  "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000000.0, "factor": 16.0, "beta_fast": 32.0,
    "beta_slow": 1.0, "original_max_position_embeddings": 16384, "mscale": 1.0, "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1}})";

constexpr std::string_view kNemotronTiny = R"({
  "architectures": ["NemotronLabsDiffusionModel"],
  "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32,
  "intermediate_size": 512, "vocab_size": 1024, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
  "block_size": 32, "tie_word_embeddings": false,
  "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "original_max_position_embeddings": 256, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}})";

std::vector<ShapeToken> gpt2_tokens() {
  return {{"bos", 50256, "<|endoftext|>"}, {"eos", 50256, "<|endoftext|>"}, {"mask", 50257, "[MASK]"}};
}

constexpr std::string_view kMdlmOwt = R"({
  "architectures": ["MDLM"],
  "hidden_dim": 768, "n_blocks": 12, "n_heads": 12, "cond_dim": 128, "vocab_size": 50258, "model_length": 1024,
  "time_conditioning": false})";

constexpr std::string_view kMdlmTiny = R"({
  "architectures": ["MDLM"],
  "hidden_dim": 256, "n_blocks": 2, "n_heads": 8, "cond_dim": 32, "vocab_size": 1024, "model_length": 1024,
  "time_conditioning": false})";

constexpr std::string_view kQwen3Tiny = R"({
  "architectures": ["Qwen3ForCausalLM"],
  "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32,
  "intermediate_size": 512, "vocab_size": 1024, "max_position_embeddings": 1024, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "tie_word_embeddings": true})";

constexpr std::string_view kTinyA2d = R"({
  "architectures": ["A2DQwen3LMHeadModel"],
  "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
  "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936, "max_position_embeddings": 40960,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": true})";

constexpr std::string_view kTinyA2dBlocks = R"({
  "architectures": ["A2DQwen3LMHeadModel"], "block_size": 32,
  "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
  "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936, "max_position_embeddings": 40960,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": true})";

constexpr std::string_view kTinyA2dCoder = R"({
  "architectures": ["A2DQwen2LMHeadModel"],
  "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
  "intermediate_size": 4864, "vocab_size": 151936, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "tie_word_embeddings": true})";

constexpr std::string_view kA2dLlamaTiny = R"({
  "architectures": ["A2DLlamaLMHeadModel"],
  "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
  "intermediate_size": 768, "vocab_size": 1024, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
  "rope_theta": 500000.0, "tie_word_embeddings": true})";

constexpr std::string_view kStableDiffcoder8b = R"({
  "architectures": ["StableDiffcoderForCausalLM"],
  "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
  "intermediate_size": 14336, "vocab_size": 155136, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
  "rope_theta": 500000.0, "tie_word_embeddings": false})";

constexpr std::string_view kWedlm8b = R"({
  "architectures": ["WeDLMForCausalLM"], "qk_norm": true, "attention_bias": false,
  "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
  "intermediate_size": 12288, "vocab_size": 151936, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
  "rope_theta": 1000000.0, "tie_word_embeddings": false})";

constexpr std::string_view kIdlm8b = R"({
  "architectures": ["SDARForCausalLM"], "_name_or_path": "I-DLM-8B",
  "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
  "intermediate_size": 12288, "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
  "rope_theta": 1000000.0, "tie_word_embeddings": false})";

constexpr std::string_view kRefusion8b = R"({
  "architectures": ["Qwen3ForCausalLM"], "_name_or_path": "ReFusion",
  "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
  "intermediate_size": 12288, "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
  "rope_theta": 1000000.0, "tie_word_embeddings": false})";

}  // namespace

const std::vector<ModelShape>& model_shapes() {
  static const std::vector<ModelShape> all = {
      {"llada-8b", "LLaDA-8B-Base and -Instruct", kLlada8b, "bailingmoe", llada_tokens()},
      {"llada-1.5", "LLaDA-1.5, the dimensions of LLaDA-8B", kLlada8b, "bailingmoe", llada_tokens()},
      {"dream-7b", "Dream-v0-7B, Dream-Coder-7B, DiffuCoder-7B", kDream7b, "qwen2", dream_tokens()},
      {"llada-moe-7b", "LLaDA-MoE-7B-A1B-Base and -Instruct", kLladaMoe7b, "bailingmoe", bailing_tokens(), "llada-moe"},
      {"llada2-mini", "LLaDA2.0-mini and LLaDA2.1-mini, 16B-A1B", kLlada2Mini, "bailingmoe", bailing_tokens()},
      {"rnd1-30b", "RND1-Base-0910, the dimensions of Qwen3-30B-A3B", kRnd1, "qwen2", rnd1_tokens()},
      {"sdar-1.7b", "SDAR-1.7B-Chat, the dimensions of Qwen3-1.7B", kSdar1b7, "qwen2", sdar_tokens()},
      {"sdar-4b", "SDAR-4B-Chat, the dimensions of Qwen3-4B", kSdar4b, "qwen2", sdar_tokens()},
      {"sdar-8b", "SDAR-8B-Chat, the dimensions of Qwen3-8B", kSdar8b, "qwen2", sdar_tokens()},
      {"sdar-30b-a3b", "SDAR-30B-A3B-Chat, the dimensions of Qwen3-30B-A3B", kSdar30b, "qwen2", sdar_tokens()},
      {"fast-dllm-v2-1.5b", "Fast-dLLM v2 1.5B, the dimensions of Qwen2.5-1.5B", kFastDllm1b5, "qwen2",
       fast_dllm_tokens()},
      {"fast-dllm-v2-7b", "Fast-dLLM v2 7B, the dimensions of Qwen2.5-7B", kFastDllm7b, "qwen2", fast_dllm_tokens()},
      {"diffusion-gemma-26b", "DiffusionGemma-26B-A4B-it", kDiffusionGemma, "qwen2", gemma_tokens()},
      {"nemotron-labs-diffusion-3b", "Nemotron-Labs-Diffusion-3B", kNemotron3b, "tekken", nemotron_tokens()},
      {"nemotron-labs-diffusion-8b", "Nemotron-Labs-Diffusion-8B", kNemotron8b, "tekken", nemotron_tokens()},
      {"nemotron-labs-diffusion-14b", "Nemotron-Labs-Diffusion-14B", kNemotron14b, "tekken", nemotron_tokens()},
      {"mdlm-owt", "MDLM trained on OpenWebText, its conditioning folded in", kMdlmOwt, "gpt-2", gpt2_tokens()},
      {"tiny-a2d-0.6b", "Tiny-A2D's Qwen3-0.6B-diffusion-mdlm", kTinyA2d, "qwen2", a2d_tokens()},
      {"tiny-a2d-0.6b-bd3lm", "Tiny-A2D's Qwen3-0.6B-diffusion-bd3lm", kTinyA2dBlocks, "qwen2", a2d_tokens()},
      {"tiny-a2d-coder-0.5b", "Tiny-A2D's Qwen2.5-Coder-0.5B-Instruct-diffusion-mdlm", kTinyA2dCoder, "qwen2",
       qwen_tokens(151665, "<|mask|>")},
      {"stable-diffcoder-8b", "Stable-DiffCoder-8B, the dimensions of Seed-Coder-8B", kStableDiffcoder8b, "seed-coder",
       diffcoder_tokens()},
      {"wedlm-8b", "WeDLM-8B, the dimensions of Qwen3-8B", kWedlm8b, "qwen2", qwen_tokens(151665, "<|mask|>")},
      {"idlm-8b", "I-DLM-8B, the dimensions of Qwen3-8B", kIdlm8b, "qwen2", sdar_tokens()},
      {"refusion-8b", "ReFusion, the dimensions of Qwen3-8B", kRefusion8b, "qwen2", refusion_tokens()},
      {"qwen2.5-7b", "Qwen2.5-7B, the autoregressive counterpart", kQwen25_7b, "qwen2", qwen_tokens()},
      {"qwen3-4b", "Qwen3-4B, the autoregressive counterpart", kQwen3_4b, "qwen2", qwen_tokens()},
      {"qwen3-30b-a3b", "Qwen3-30B-A3B, the autoregressive counterpart", kQwen3_30b, "qwen2", qwen_tokens()},
      {"llama-3-8b", "Llama-3-8B, the autoregressive counterpart", kLlama38b, "llama-bpe", llama3_tokens()},
      {"llada-100m", "a small LLaDA with a tied head, for quick comparisons", kLlada100m, "bailingmoe", llada_tokens()},
      {"llada-tiny", "a LLaDA for tests", kLladaTiny, "bailingmoe", llada_tokens()},
      {"llada-moe-tiny", "a LLaDA-MoE for tests", kLladaMoeTiny, "bailingmoe", bailing_tokens()},
      {"llada2-tiny", "a LLaDA2 for tests", kLlada2Tiny, "bailingmoe", bailing_tokens()},
      {"dream-tiny", "a Dream for tests", kDreamTiny, "qwen2", dream_tokens()},
      {"rnd1-tiny", "an RND1 for tests", kRnd1Tiny, "qwen2", rnd1_tokens()},
      {"sdar-tiny", "an SDAR with a tied head, for tests", kSdarTiny, "qwen2", sdar_tokens()},
      {"fast-dllm-v2-tiny", "a Fast-dLLM v2 with a tied head, for tests", kFastDllmTiny, "qwen2", fast_dllm_tokens()},
      {"diffusion-gemma-tiny", "a DiffusionGemma for tests", kDiffusionGemmaTiny, "qwen2", gemma_tokens()},
      {"nemotron-tiny", "a Nemotron-Labs-Diffusion for tests", kNemotronTiny, "tekken", nemotron_tokens()},
      {"mdlm-tiny", "an MDLM for tests", kMdlmTiny, "gpt-2", gpt2_tokens()},
      {"a2d-llama-tiny", "an A2D over Llama with a tied head, for tests", kA2dLlamaTiny, "llama-bpe",
       a2d_llama_tokens()},
      {"qwen3-tiny", "a Qwen3 with a tied head, for tests", kQwen3Tiny, "qwen2", qwen_tokens()},
      {"llama-tiny", "a Llama with a tied head, for tests", kLlamaTiny, "llama-bpe", llama3_tokens()},
  };
  return all;
}

}  // namespace dllm
