// MDLM (Sahoo et al., "Simple and Effective Masked Diffusion Language Models", arXiv 2406.07524): a GPT-2-size DiT that
// fills masks with full attention: LayerNorm modulated by the time (adaLN), RoPE, a GELU unit with biases.
//
// The published models were trained without conditioning on the time: its embedding is that of 0, so shifts, scales and
// gates are constants of the checkpoint. The importer computes them and folds them into the matrices around them, which
// leaves a transformer of the operators that every other model has.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/to_size.h"
#include "base/try.h"
#include "model/architecture.h"
#include "model/dense_transformer.h"
#include "numerics/tensor_type.h"

namespace dllm {

Architecture mdlm_architecture();

namespace {

constexpr std::int64_t kMdlmRows = 50258;  ///< GPT-2's tokens and the mask
constexpr TokenId kGpt2End = 50256;        ///< <|endoftext|> begins, separates and ends texts

void set_mdlm_defaults(ModelDesc& desc) {
  desc.norm_eps = 1e-5f;
  desc.rope_theta = 10000.f;
  desc.context_length = 1024;
  desc.qkv_bias = true;  // of the folded shifts
  desc.plain_ffn = true;
  desc.mask = kMdlmRows - 1;
  desc.bos = desc.eos = kGpt2End;
}

struct MdlmDims {
  std::int64_t vocab, width, layers, heads, context;
};

Expected<MdlmDims> mdlm_dims(const HfConfig& config) {
  DLLM_CHECK_OK(config.expect("time_conditioning", false));
  DLLM_CHECK_OK(config.expect("tie_word_embeddings", false));
  DLLM_CHECK_OK(config.expect("causal", false));
  MdlmDims dims{};
  DLLM_TRY(dims.vocab, config.integer("vocab_size"));
  DLLM_TRY(dims.width, config.integer("hidden_dim"));
  DLLM_TRY(dims.layers, config.integer("n_blocks"));
  DLLM_TRY(dims.heads, config.integer("n_heads"));
  DLLM_TRY(dims.context, config.integer_or("model_length", 1024));
  for (const std::int64_t dim : {dims.vocab, dims.width, dims.layers, dims.heads})
    if (dim < 1 || dim > 1 << 24)
      return Error{ErrorCode::kInvalidFile, fmt::format("{} is not a valid size", dim), config.file(), ""};
  if (dims.width % dims.heads == 0) return dims;
  return Error{ErrorCode::kInvalidFile,
               fmt::format("hidden_dim {} is not a multiple of n_heads {}", dims.width, dims.heads), config.file(), ""};
}

Expected<Metadata> mdlm_metadata(const HfConfig& config) {
  DLLM_TRY(const MdlmDims dims, mdlm_dims(config));
  Metadata meta = dense_metadata("mdlm", {.vocab = dims.vocab,
                                          .width = dims.width,
                                          .layers = dims.layers,
                                          .heads = dims.heads,
                                          .kv_heads = dims.heads,
                                          .head_dim = dims.width / dims.heads,
                                          .ffn_width = 4 * dims.width,
                                          .context_length = dims.context,
                                          .norm_eps = 1e-5,
                                          .rope_theta = 10000.0});
  meta.set("mdlm.attention.causal", MetaValue::boolean(false));
  meta.set("diffusion.shift_logits", MetaValue::boolean(false));
  DLLM_TRY(const std::int64_t mask, config.integer_or("mask_token_id", dims.vocab - 1));
  const auto token = [&meta](std::string_view role, std::int64_t id) {
    meta.set(fmt::format("tokenizer.ggml.{}_token_id", role), MetaValue::u32(static_cast<std::uint32_t>(id)));
  };
  token("mask", mask);
  if (dims.vocab != kMdlmRows) return meta;
  token("bos", kGpt2End);
  token("eos", kGpt2End);
  meta.set("tokenizer.ggml.add_bos_token", MetaValue::boolean(true));  // as texts were packed in training
  return meta;
}

/// Everything is float, row-major, with PyTorch's order: `out` rows of `in`.
class MdlmFold {
 public:
  MdlmFold(const MdlmDims& dims, const Safetensors& files) : d_(dims), files_(files) {}

  Expected<std::vector<GeneratedTensor>> run() {
    DLLM_TRY(std::vector<float> table, read("vocab_embed.embedding", {d_.width, d_.vocab}));
    for (std::int64_t row = 0; row < d_.vocab; ++row)
      centre(std::span(table).subspan(to_size(row * d_.width), to_size(d_.width)));
    put("token_embd.weight", {d_.width, d_.vocab}, std::move(table));
    DLLM_CHECK_OK(read_condition());
    for (std::int64_t layer = 0; layer < d_.layers; ++layer) DLLM_CHECK_OK(fold_layer(layer));
    DLLM_CHECK_OK(fold_head());
    DLLM_CHECK_OK(check_all_used());
    return std::move(made_);
  }

 private:
  void put(std::string name, Shape shape, std::vector<float> values) {
    made_.push_back({std::move(name), std::move(values), std::move(shape)});
  }

  /// `shape` in GGML's order. Errors: kInvalidFile.
  Expected<std::vector<float>> read(const std::string& name, const Shape& shape) {
    const std::string full = "backbone." + name;
    const SafeTensor* tensor = files_.find(full);
    if (tensor == nullptr) {
      const auto unread = std::ranges::find(files_.unread(), full, &UnreadTensor::name);
      if (unread != files_.unread().end()) return unread->why;
      return Error{ErrorCode::kInvalidFile, "the checkpoint lacks this tensor", full, "the download is incomplete"};
    }
    if (tensor->shape != shape)
      return Error{ErrorCode::kInvalidFile,
                   fmt::format("shape {}, but config.json asks for {}", to_string(tensor->shape), to_string(shape)),
                   full, ""};
    used_.insert(full);
    std::vector<float> values(to_size(element_count(shape)));
    codec(tensor->type).dequantize(tensor->data.data(), values.data(), element_count(shape));
    return values;
  }

  /// rows x + bias
  static std::vector<float> product(std::span<const float> matrix, std::span<const float> x,
                                    std::span<const float> bias = {}) {
    std::vector<float> out(matrix.size() / x.size());
    for (std::size_t row = 0; row < out.size(); ++row) {
      double sum = bias.empty() ? 0 : static_cast<double>(bias[row]);
      for (std::size_t i = 0; i < x.size(); ++i)
        sum += static_cast<double>(matrix[row * x.size() + i]) * static_cast<double>(x[i]);
      out[row] = static_cast<float>(sum);
    }
    return out;
  }

  static void centre(std::span<float> x) {
    double sum = 0;
    for (const float v : x) sum += static_cast<double>(v);
    const auto mean = static_cast<float>(sum / static_cast<double>(x.size()));
    for (float& v : x) v -= mean;
  }

  static void silu(std::vector<float>& x) {
    for (float& v : x) v = v / (1.f + std::exp(-v));
  }

  /// silu(MLP(sinusoids of time 0)): cosines 1, sines 0.
  Expected<void> read_condition() {
    const SafeTensor* first = files_.find("backbone.sigma_map.mlp.0.weight");
    const SafeTensor* last = files_.find("backbone.sigma_map.mlp.2.weight");
    const bool matrices = first != nullptr && last != nullptr && first->shape.size() == 2 && last->shape.size() == 2;
    const std::int64_t waves = matrices ? first->shape[0] : 256, cond = matrices ? last->shape[1] : 128;
    std::vector<float> time(to_size(waves), 0.f);
    std::fill_n(time.begin(), to_size(waves / 2), 1.f);
    DLLM_TRY(const auto w0, read("sigma_map.mlp.0.weight", {waves, cond}));
    DLLM_TRY(const auto b0, read("sigma_map.mlp.0.bias", {cond}));
    DLLM_TRY(const auto w2, read("sigma_map.mlp.2.weight", {cond, cond}));
    DLLM_TRY(const auto b2, read("sigma_map.mlp.2.bias", {cond}));
    std::vector<float> hidden = product(w0, time, b0);
    silu(hidden);
    condition_ = product(w2, hidden, b2);
    silu(condition_);
    return {};
  }

  /// `parts` vectors of the model's width, which the condition gives.
  Expected<std::vector<std::vector<float>>> modulation(const std::string& name, std::int64_t parts) {
    DLLM_TRY(const auto weight,
             read(name + ".weight", {static_cast<std::int64_t>(condition_.size()), parts * d_.width}));
    DLLM_TRY(const auto bias, read(name + ".bias", {parts * d_.width}));
    const std::vector<float> all = product(weight, condition_, bias);
    std::vector<std::vector<float>> split;
    for (std::int64_t part = 0; part < parts; ++part)
      split.emplace_back(all.begin() + part * d_.width, all.begin() + (part + 1) * d_.width);
    return split;
  }

  /// LayerNorm(x) gain (1 + scale) + shift: the shift becomes the bias of what reads it. The mean is not subtracted
  /// here: every summand of x is centred (see centre, into_residual), so LayerNorm is RMSNorm.
  Expected<void> fold_norm(const std::string& hf, std::string gguf, std::span<const float> scale) {
    DLLM_TRY(std::vector<float> gain, read(hf, {d_.width}));
    for (std::size_t i = 0; i < gain.size(); ++i) gain[i] *= 1.f + scale[i];
    put(std::move(gguf), {d_.width}, std::move(gain));
    return {};
  }

  /// Of a product that joins the residual stream: each output times its gate, minus the mean of all outputs.
  void into_residual(std::vector<float>& matrix, std::span<const float> gate) const {
    const std::size_t in = matrix.size() / gate.size();
    std::vector<double> mean(in, 0.0);
    for (std::size_t row = 0; row < gate.size(); ++row)
      for (std::size_t i = 0; i < in; ++i) {
        float& v = matrix[row * in + i];
        v *= gate[row];
        mean[i] += static_cast<double>(v) / static_cast<double>(gate.size());
      }
    for (std::size_t row = 0; row < gate.size(); ++row)
      for (std::size_t i = 0; i < in; ++i) matrix[row * in + i] -= static_cast<float>(mean[i]);
  }

  Expected<void> fold_layer(std::int64_t layer) {
    const std::string hf = fmt::format("blocks.{}.", layer), gguf = fmt::format("blk.{}.", layer);
    DLLM_TRY(const auto m, modulation(hf + "adaLN_modulation", 6));  // shift, scale, gate of attention, then of the FFN
    DLLM_CHECK_OK(fold_norm(hf + "norm1.weight", gguf + "attn_norm.weight", m[1]));
    DLLM_TRY(const auto qkv, read(hf + "attn_qkv.weight", {d_.width, 3 * d_.width}));
    const std::int64_t square = d_.width * d_.width;
    for (std::int64_t part = 0; part < 3; ++part) {
      const std::string name = gguf + "attn_" + std::string(1, "qkv"[part]);
      std::vector<float> own(qkv.begin() + part * square, qkv.begin() + (part + 1) * square);
      put(name + ".bias", {d_.width}, product(own, m[0]));
      put(name + ".weight", {d_.width, d_.width}, std::move(own));
    }
    DLLM_TRY(std::vector<float> out, read(hf + "attn_out.weight", {d_.width, d_.width}));
    into_residual(out, m[2]);
    put(gguf + "attn_output.weight", {d_.width, d_.width}, std::move(out));
    return fold_ffn(hf, gguf, m);
  }

  Expected<void> fold_ffn(const std::string& hf, const std::string& gguf, const std::vector<std::vector<float>>& m) {
    const std::int64_t inner = 4 * d_.width;
    DLLM_CHECK_OK(fold_norm(hf + "norm2.weight", gguf + "ffn_norm.weight", m[4]));
    DLLM_TRY(std::vector<float> up, read(hf + "mlp.0.weight", {d_.width, inner}));
    DLLM_TRY(const auto up_bias, read(hf + "mlp.0.bias", {inner}));
    put(gguf + "ffn_up.bias", {inner}, product(up, m[3], up_bias));
    put(gguf + "ffn_up.weight", {d_.width, inner}, std::move(up));
    DLLM_TRY(std::vector<float> down, read(hf + "mlp.2.weight", {inner, d_.width}));
    DLLM_TRY(std::vector<float> down_bias, read(hf + "mlp.2.bias", {d_.width}));
    into_residual(down, m[5]);
    into_residual(down_bias, m[5]);
    put(gguf + "ffn_down.bias", {d_.width}, std::move(down_bias));
    put(gguf + "ffn_down.weight", {inner, d_.width}, std::move(down));
    return {};
  }

  Expected<void> fold_head() {
    DLLM_TRY(const auto m, modulation("output_layer.adaLN_modulation", 2));  // shift, scale
    DLLM_CHECK_OK(fold_norm("output_layer.norm_final.weight", "output_norm.weight", m[1]));
    DLLM_TRY(std::vector<float> head, read("output_layer.linear.weight", {d_.width, d_.vocab}));
    DLLM_TRY(const auto bias, read("output_layer.linear.bias", {d_.vocab}));
    put("output.bias", {d_.vocab}, product(head, m[0], bias));
    put("output.weight", {d_.width, d_.vocab}, std::move(head));
    return {};
  }

  Expected<void> check_all_used() const {
    const Architecture architecture = mdlm_architecture();
    for (const SafeTensor& tensor : files_.tensors())
      if (!used_.contains(tensor.name) && !is_left_out(architecture, tensor.name))
        return Error{ErrorCode::kUnsupported, "the architecture has no such tensor", tensor.name,
                     "running without it would be silently wrong"};
    for (const UnreadTensor& tensor : files_.unread())
      if (!is_left_out(architecture, tensor.name)) return tensor.why;
    return {};
  }

  MdlmDims d_;
  const Safetensors& files_;
  std::set<std::string> used_;
  std::vector<float> condition_;
  std::vector<GeneratedTensor> made_;
};

Expected<std::vector<GeneratedTensor>> fold_mdlm(const HfConfig& config, const Safetensors& files) {
  DLLM_TRY(const MdlmDims dims, mdlm_dims(config));
  return MdlmFold(dims, files).run();
}

}  // namespace

Architecture mdlm_architecture() {
  return {.name = "mdlm",
          .hf_architectures = {"MDLM"},
          .set_defaults = set_mdlm_defaults,
          .stop_texts = {"<|endoftext|>"},
          .build = build_dense_transformer,
          .metadata_from_hf = mdlm_metadata,
          .renames = {},
          .fold = fold_mdlm};
}

}  // namespace dllm
