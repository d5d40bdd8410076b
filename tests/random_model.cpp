#include "random_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/hash.h"
#include "base/rng.h"
#include "model/dense_transformer.h"
#include "model/describe.h"
#include "model/expert_layer.h"
#include "numerics/half.h"

namespace dllm::test {
namespace {

struct Storage {
  std::vector<std::vector<std::byte>> tensors;
};

float normal(std::uint64_t seed, std::uint32_t tensor, std::uint32_t index) {
  const double u = uniform01({seed, 0}, RngPurpose::kToken, tensor, 0, index);
  const double v = uniform01({seed, 0}, RngPurpose::kToken, tensor, 1, index);
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979 * v));
}

/// The half of a block of IQ1, IQ2 or IQ3: its first field, but of IQ1_M the highest four bits of four words.
void set_half(TensorType type, std::byte* block, float d) {
  const std::uint16_t half = f32_to_f16(d);
  if (type != TensorType::kIQ1_M) {
    std::memcpy(block, &half, 2);
    return;
  }
  for (int j = 0; j < 4; ++j) {
    std::byte& upper = block[48 + 2 * j + 1];
    upper = (upper & std::byte{15}) | static_cast<std::byte>((half >> (4 * j) & 15) << 4);
  }
}

/// Random blocks of a type without an encoder, whose values are of about this magnitude.
std::vector<std::byte> random_blocks(const Codec& format, std::int64_t count, float scale, std::uint64_t state) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(format.row_bytes(count)));
  std::vector<float> values(static_cast<std::size_t>(format.block_elems));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(splitmix64(state) & 255);
  for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(format.block_bytes)) {
    set_half(format.type, bytes.data() + at, 1.f);
    format.dequantize(bytes.data() + at, values.data(), format.block_elems);
    float squares = 0;
    for (const float value : values) squares += value * value;
    set_half(format.type, bytes.data() + at, scale / std::sqrt(squares / static_cast<float>(values.size())));
  }
  return bytes;
}

std::vector<std::byte> random_tensor(const WeightDecl& decl, TensorType type, std::uint64_t seed, std::uint32_t index) {
  const std::int64_t count = element_count(decl.shape);
  std::vector<float> values(static_cast<std::size_t>(count));
  const bool gain = decl.name.find("norm") != std::string::npos || decl.name.find("scale") != std::string::npos ||
                    decl.name == "rope_freqs.weight";
  const bool bias = decl.name.ends_with(".bias");
  // Fan-in scaling keeps activations of order 1, so that errors are comparable between shapes.
  const float scale = bias                               ? 0.1f
                      : decl.name == "token_embd.weight" ? 1.f
                                                         : 1.f / std::sqrt(static_cast<float>(decl.shape[0]));
  if (codec(type).quantize == nullptr) return random_blocks(codec(type), count, scale, seed * 1000 + index);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (decl.name == "d2t") {
      values[i] = static_cast<float>(2 * i + 1);
      continue;
    }
    const float x = normal(seed, index, static_cast<std::uint32_t>(i));
    values[i] = gain ? 1.f + 0.1f * x : scale * x;
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(codec(type).row_bytes(count)));
  codec(type).quantize(values.data(), bytes.data(), count);
  return bytes;
}

/// Every other layer has a sliding window, and twice the KV heads of half the size; canvases of eight.
void set_layer_kinds(const RandomModel& spec, Metadata& meta) {
  const auto set = [&](const char* tail, MetaValue value) {
    meta.set(spec.architecture + "." + tail, std::move(value));
  };
  const auto head_dim = static_cast<std::uint32_t>(spec.width / spec.heads);
  std::vector<bool> slides;
  std::vector<std::int32_t> kv_heads;
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    slides.push_back(layer % 2 == 0);
    kv_heads.push_back(
        static_cast<std::int32_t>(slides.back() ? std::min(2 * spec.kv_heads, spec.heads) : spec.kv_heads));
  }
  set("attention.head_count_kv", MetaValue::i32s(kv_heads));
  set("attention.sliding_window", MetaValue::u32(5));
  set("attention.sliding_window_pattern", MetaValue::bools(slides));
  set("attention.key_length_swa", MetaValue::u32(head_dim / 2));
  set("attention.value_length_swa", MetaValue::u32(head_dim / 2));
  set("rope.dimension_count_swa", MetaValue::u32(head_dim / 2));
  set("rope.freq_base_swa", MetaValue::f32(1000.f));
  set("final_logit_softcapping", MetaValue::f32(5.f));
  meta.set("diffusion.canvas_length", MetaValue::u32(8));
}

/// As in files, and what complete_drafter() would add.
void set_drafter(const RandomModel& spec, Metadata& meta) {
  const DrafterDesc& drafter = spec.drafter;
  if (spec.drafter_window > 0) {
    std::vector<bool> slides;
    for (std::int64_t layer = 0; layer < spec.layers; ++layer) slides.push_back(layer % 2 == 0);
    meta.set("dflash.attention.sliding_window", MetaValue::u32(static_cast<std::uint32_t>(spec.drafter_window)));
    meta.set("dflash.attention.sliding_window_pattern", MetaValue::bools(slides));
  }
  if (drafter.causal) meta.set("dflash.attention.causal", MetaValue::boolean(*drafter.causal));
  std::vector<std::int32_t> layers;
  for (const std::int32_t layer : drafter.target_layers) layers.push_back(layer + 1);
  meta.set("dflash.target_layers", MetaValue::i32s(layers));
  const std::pair<const char*, std::int64_t> sizes[] = {{"block_size", drafter.block},
                                                        {"conv_kernel_size", drafter.conv_taps},
                                                        {"conv_group_size", drafter.conv_group},
                                                        {"selector_rank", drafter.selector_rank},
                                                        {"selector_top_k", drafter.selector_top},
                                                        {"markov_rank", drafter.markov_rank},
                                                        {"draft_vocab_size", drafter.vocab}};
  for (const auto& [key, value] : sizes)
    meta.set(std::string("dflash.") + key, MetaValue::u32(static_cast<std::uint32_t>(value)));
  meta.set("dflash.confidence_head", MetaValue::boolean(drafter.confidence_head));
}

}  // namespace

ModelSource random_source(const RandomModel& spec) {
  ModelSource source;
  source.name = "random " + spec.architecture;
  const std::int64_t head_dim = spec.width / spec.heads;
  source.metadata = dense_metadata(spec.architecture, {.vocab = spec.vocab,
                                                       .width = spec.width,
                                                       .layers = spec.layers,
                                                       .heads = spec.heads,
                                                       .kv_heads = spec.kv_heads,
                                                       .head_dim = head_dim,
                                                       .ffn_width = spec.ffn_width,
                                                       .context_length = 512,
                                                       .norm_eps = 1e-5,
                                                       .rope_theta = 10000});
  source.metadata.set("general.architecture", MetaValue::string(spec.architecture));
  const Architecture& architecture = **find_architecture(spec.architecture);
  if (architecture.build_context)
    set_drafter(spec, source.metadata);
  else if (architecture.read_layers)
    set_layer_kinds(spec, source.metadata);
  if (architecture.experts) set_expert_metadata(spec.architecture, spec.experts, source.metadata);
  ModelDesc defaults;
  architecture.set_defaults(defaults);
  if (defaults.mask || architecture.build_context)
    source.metadata.set("tokenizer.ggml.mask_token_id", MetaValue::u32(static_cast<std::uint32_t>(spec.vocab - 1)));
  const ModelDesc desc = *describe(architecture, source.metadata, {spec.vocab, 1 << 20, true}, nullptr, Log());
  auto storage = std::make_shared<Storage>();
  std::uint32_t index = 0;
  for (const WeightDecl& decl : architecture.build(desc, {1, 1}).weights) {
    ++index;
    const bool selection_bias =
        decl.name.find("exp_probs_b") != std::string::npos && desc.experts.score == GateScore::kSigmoid;
    if (!decl.required && !selection_bias) continue;
    const bool left_to_target =
        decl.name == "token_embd.weight" || (decl.name == "output.weight" && spec.drafter.vocab == 0);
    if (architecture.build_context && left_to_target) continue;
    const bool router = decl.name.find("ffn_gate_inp") != std::string::npos;
    const bool matrix = !router && decl.shape.size() >= 2 && decl.shape[0] % codec(spec.type).block_elems == 0;
    const TensorType type = matrix ? spec.type : TensorType::kF32;
    storage->tensors.push_back(random_tensor(decl, type, spec.seed, index));
    source.tensors.push_back({decl.name, type, decl.shape, storage->tensors.back(), 0});
  }
  source.owner = storage;
  return source;
}

}  // namespace dllm::test
