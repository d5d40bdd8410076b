#include "quant/rotator.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "base/parallel.h"
#include "base/try.h"

namespace dllm {
namespace {

constexpr std::uint64_t kResidualSeed = 0x51a07;
constexpr std::int64_t kColumns = 16;  ///< that are rotated together: a cache line of floats

constexpr RotationRule kRules[] = {
    {"attn_norm.weight", RotationRule::kGain},
    {"ffn_norm.weight", RotationRule::kGain},
    {"output_norm.weight", RotationRule::kGain},
    {"token_embd.weight", RotationRule::kReads},
    {"output.weight", RotationRule::kReads, "output_norm.weight"},
    {"attn_q.weight", RotationRule::kReads, "attn_norm.weight"},
    {"attn_k.weight", RotationRule::kReads, "attn_norm.weight"},
    {"attn_v.weight", RotationRule::kReads | RotationRule::kMakesValues, "attn_norm.weight"},
    {"attn_qkv.weight", RotationRule::kReads | RotationRule::kMakesValues, "attn_norm.weight"},
    {"attn_v.bias", RotationRule::kMakesValues},
    {"attn_qkv.bias", RotationRule::kMakesValues},
    {"attn_output.weight", RotationRule::kWrites | RotationRule::kReadsValues},
    {"attn_output.bias", RotationRule::kWrites},
    {"ffn_gate.weight", RotationRule::kReads, "ffn_norm.weight"},
    {"ffn_up.weight", RotationRule::kReads, "ffn_norm.weight"},
    {"ffn_down.weight", RotationRule::kWrites, {}, &OnlineRotation::down},
    {"ffn_gate_inp.weight", RotationRule::kReads, "ffn_norm.weight"},
    {"ffn_gate_exps.weight", RotationRule::kReads, "ffn_norm.weight"},
    {"ffn_up_exps.weight", RotationRule::kReads, "ffn_norm.weight"},
    {"ffn_gate_up_exps.weight", RotationRule::kReads, "ffn_norm.weight"},
    {"ffn_down_exps.weight", RotationRule::kWrites, {}, &OnlineRotation::down_experts},
    {"ffn_gate_shexp.weight", RotationRule::kReads, "ffn_norm.weight"},
    {"ffn_up_shexp.weight", RotationRule::kReads, "ffn_norm.weight"},
    {"ffn_down_shexp.weight", RotationRule::kWrites, {}, &OnlineRotation::down_shared},
    {"attn_q.bias"},
    {"attn_k.bias"},
    {"attn_q_norm.weight"},
    {"attn_k_norm.weight"},
    {"exp_probs_b.bias"},
    {"rope_freqs.weight"},
};

/// "blk.3." and "attn_q.weight".
std::pair<std::string_view, std::string_view> split_name(std::string_view name) {
  if (!name.starts_with("blk.")) return {"", name};
  const std::size_t dot = name.find('.', 4);
  return dot == std::string_view::npos ? std::pair(std::string_view(), name)
                                       : std::pair(name.substr(0, dot + 1), name.substr(dot + 1));
}

std::vector<float> decode(const SourceTensor& tensor) {
  std::vector<std::byte> buffer;
  std::vector<float> values(static_cast<std::size_t>(element_count(tensor.shape)));
  codec(tensor.type).dequantize(tensor_bytes(tensor, buffer).data(), values.data(), element_count(tensor.shape));
  return values;
}

}  // namespace

Expected<const RotationRule*> rotation_rule(const SourceTensor& tensor) {
  const std::string_view own = split_name(tensor.name).second;
  for (const RotationRule& rule : kRules)
    if (rule.name == own) return &rule;
  return Error{ErrorCode::kUnsupported, "a model with this tensor cannot be rotated", tensor.name,
               "leave --rotate out"};
}

std::size_t layer_of(const SourceTensor& tensor) {
  std::size_t layer = 0;
  if (const std::string_view prefix = split_name(tensor.name).first; prefix.size() > 4)
    std::from_chars(prefix.data() + 4, prefix.data() + prefix.size() - 1, layer);
  return layer;
}

Expected<Rotator> Rotator::create(const ModelSource& source, const ModelDesc& desc, RotationPlan plan, int threads) {
  DLLM_TRY(Hadamard residual, Hadamard::create(plan.residual ? desc.width : 1, kResidualSeed));
  DLLM_TRY(Hadamard heads, Hadamard::create(desc.head_dim, 0));
  std::vector<Hadamard> online;
  for (const std::int64_t order : {plan.online.down, plan.online.down_shared, plan.online.down_experts}) {
    if (order == 0) continue;
    DLLM_TRY(Hadamard matrix, Hadamard::online(order));
    online.push_back(std::move(matrix));
  }
  return Rotator(source, desc, std::move(residual), std::move(heads), std::move(online), std::move(plan), threads);
}

Rotator::Rotator(const ModelSource& source, const ModelDesc& desc, Hadamard residual, Hadamard heads,
                 std::vector<Hadamard> online, RotationPlan plan, int threads)
    : source_(&source),
      desc_(&desc),
      residual_(std::move(residual)),
      heads_(std::move(heads)),
      online_(std::move(online)),
      plan_(std::move(plan)),
      pool_(std::make_unique<ThreadPool>(threads)) {}

bool Rotator::rotates_heads(const SourceTensor& tensor) const {
  const std::size_t layer = layer_of(tensor);
  return layer < plan_.heads.size() && plan_.heads[layer];
}

bool Rotator::changes(const SourceTensor& tensor, const RotationRule& rule) const {
  const bool values = (rule.parts & (RotationRule::kMakesValues | RotationRule::kReadsValues)) != 0;
  const bool stream = (rule.parts & (RotationRule::kGain | RotationRule::kReads | RotationRule::kWrites)) != 0;
  return (values && rotates_heads(tensor)) || (stream && plan_.residual) || online_order(rule) != 0;
}

Expected<std::span<const float>> Rotator::rotate(const SourceTensor& tensor, const RotationRule& rule) {
  values_ = decode(tensor);
  if (plan_.residual && (rule.parts & RotationRule::kGain) != 0) std::ranges::fill(values_, 1.f);
  const std::int64_t row = tensor.shape.front(), rows = row_count(tensor.shape);
  const bool vector = tensor.shape.size() == 1;
  if (plan_.residual && (rule.parts & RotationRule::kReads) != 0) {
    DLLM_CHECK_OK(fold_gain(tensor, rule, row, rows));
    rotate_rows(residual_, row, rows, row);
  }
  if (rotates_heads(tensor) && (rule.parts & RotationRule::kReadsValues) != 0) rotate_rows(heads_, row, rows, row);
  if (rotates_heads(tensor) && (rule.parts & RotationRule::kMakesValues) != 0) {
    const std::int64_t outputs = vector ? row : rows, kept = outputs - desc_->kv_heads * desc_->head_dim;
    // Of a fused projection only the last rows are values.
    rotate_outputs(heads_, vector ? 1 : row, kept, outputs);
  }
  // W x = (W H) (H^T x): the rows are transformed as the input is.
  if (const std::int64_t order = online_order(rule); order != 0)
    rotate_rows(*std::ranges::find(online_, order, &Hadamard::order), row, rows, row);
  if (plan_.residual && (rule.parts & RotationRule::kWrites) != 0)
    rotate_outputs(residual_, vector ? 1 : row, 0, vector ? row : rows);
  return std::span<const float>(values_);
}

Expected<void> Rotator::fold_gain(const SourceTensor& tensor, const RotationRule& rule, std::int64_t row,
                                  std::int64_t rows) {
  if (rule.gain.empty()) return {};
  const std::string name = std::string(split_name(tensor.name).first) + std::string(rule.gain);
  const SourceTensor* const norm = source_->find(name);
  if (norm == nullptr || norm->shape != Shape{row})
    return Error{ErrorCode::kUnsupported, "the norm before it is missing", tensor.name, "leave --rotate out"};
  const std::vector<float> gain = decode(*norm);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < row; ++i)
      values_[static_cast<std::size_t>(r * row + i)] *= gain[static_cast<std::size_t>(i)];
  return {};
}

/// Every `order` values of each row.
void Rotator::rotate_rows(const Hadamard& matrix, std::int64_t row, std::int64_t rows, std::int64_t count) {
  const std::int64_t n = matrix.order();
  parallel_pieces(*pool_, rows, 16, [&](std::int64_t first, std::int64_t end, int) {
    std::vector<double> x(static_cast<std::size_t>(n));
    for (std::int64_t r = first; r < end; ++r)
      for (std::int64_t at = r * row; at < r * row + count; at += n) rotate_at(matrix, at, 1, x);
  });
}

/// Rows [first, end) of a matrix with rows of `row` values, in groups of `order`: its outputs.
void Rotator::rotate_outputs(const Hadamard& matrix, std::int64_t row, std::int64_t first, std::int64_t end) {
  const std::int64_t n = matrix.order(), pieces = (row + kColumns - 1) / kColumns;
  parallel_pieces(*pool_, pieces, 1, [&](std::int64_t from, std::int64_t to, int) {
    std::vector<double> x(static_cast<std::size_t>(n));
    for (std::int64_t group = first; group < end; group += n)
      for (std::int64_t c = from * kColumns; c < std::min(row, to * kColumns); ++c)
        rotate_at(matrix, group * row + c, row, x);
  });
}

void Rotator::rotate_at(const Hadamard& matrix, std::int64_t at, std::int64_t stride, std::vector<double>& x) {
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<double>(values_[static_cast<std::size_t>(at) + i * static_cast<std::size_t>(stride)]);
  matrix.apply(x);
  for (std::size_t i = 0; i < x.size(); ++i)
    values_[static_cast<std::size_t>(at) + i * static_cast<std::size_t>(stride)] = static_cast<float>(x[i]);
}

}  // namespace dllm
