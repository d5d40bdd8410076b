#include "quant/rotation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "format/gguf.h"
#include "model/model.h"
#include "quant/hadamard.h"

namespace dllm {
namespace {

constexpr std::uint64_t kResidualSeed = 0x51a07;
constexpr std::int64_t kColumns = 16;  ///< that are rotated together: a cache line of floats
constexpr const char* kRotationKey = "dllm.quantization.rotation";
constexpr const char* kNames[] = {"none", "heads", "quarot"};

/// What a rotation does to a tensor.
struct Rule {
  std::string_view name;  ///< after "blk.N.", or the whole name
  enum Part : unsigned {
    kKept = 0,
    kGain = 1,         ///< a norm's, which becomes 1
    kReads = 2,        ///< its rows read the residual stream
    kWrites = 4,       ///< its outputs are the residual stream
    kMakesValues = 8,  ///< its outputs are the values of heads
    kReadsValues = 16
  };
  unsigned parts = kKept;
  std::string_view gain = {};  ///< the norm before it
};

constexpr Rule kRules[] = {
    {"attn_norm.weight", Rule::kGain},
    {"ffn_norm.weight", Rule::kGain},
    {"output_norm.weight", Rule::kGain},
    {"token_embd.weight", Rule::kReads},
    {"output.weight", Rule::kReads, "output_norm.weight"},
    {"attn_q.weight", Rule::kReads, "attn_norm.weight"},
    {"attn_k.weight", Rule::kReads, "attn_norm.weight"},
    {"attn_v.weight", Rule::kReads | Rule::kMakesValues, "attn_norm.weight"},
    {"attn_qkv.weight", Rule::kReads | Rule::kMakesValues, "attn_norm.weight"},
    {"attn_v.bias", Rule::kMakesValues},
    {"attn_qkv.bias", Rule::kMakesValues},
    {"attn_output.weight", Rule::kWrites | Rule::kReadsValues},
    {"attn_output.bias", Rule::kWrites},
    {"ffn_gate.weight", Rule::kReads, "ffn_norm.weight"},
    {"ffn_up.weight", Rule::kReads, "ffn_norm.weight"},
    {"ffn_down.weight", Rule::kWrites},
    {"ffn_gate_inp.weight", Rule::kReads, "ffn_norm.weight"},
    {"ffn_gate_exps.weight", Rule::kReads, "ffn_norm.weight"},
    {"ffn_up_exps.weight", Rule::kReads, "ffn_norm.weight"},
    {"ffn_gate_up_exps.weight", Rule::kReads, "ffn_norm.weight"},
    {"ffn_down_exps.weight", Rule::kWrites},
    {"ffn_gate_shexp.weight", Rule::kReads, "ffn_norm.weight"},
    {"ffn_up_shexp.weight", Rule::kReads, "ffn_norm.weight"},
    {"ffn_down_shexp.weight", Rule::kWrites},
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

Expected<const Rule*> rule_of(const SourceTensor& tensor) {
  const std::string_view own = split_name(tensor.name).second;
  for (const Rule& rule : kRules)
    if (rule.name == own) return &rule;
  return Error{ErrorCode::kUnsupported, "a model with this tensor cannot be rotated", tensor.name,
               "leave --rotate out"};
}

std::vector<float> decode(const SourceTensor& tensor) {
  std::vector<std::byte> buffer;
  std::vector<float> values(static_cast<std::size_t>(element_count(tensor.shape)));
  codec(tensor.type).dequantize(tensor_bytes(tensor, buffer).data(), values.data(), element_count(tensor.shape));
  return values;
}

class Rotator {
 public:
  Rotator(const ModelSource& source, const ModelDesc& desc, Hadamard residual, Hadamard heads, Rotation rotation,
          int threads)
      : source_(source),
        desc_(desc),
        residual_(std::move(residual)),
        heads_(std::move(heads)),
        all_(rotation == Rotation::kQuarot),
        pool_(threads) {}

  bool changes(const Rule& rule) const {
    return (rule.parts & (Rule::kMakesValues | Rule::kReadsValues)) != 0 || (all_ && rule.parts != Rule::kKept);
  }

  /// The tensor's values after the rotation, as F32.
  Expected<std::span<const std::byte>> rotate(const SourceTensor& tensor, const Rule& rule) {
    values_ = decode(tensor);
    if (all_ && (rule.parts & Rule::kGain) != 0) std::ranges::fill(values_, 1.f);
    const std::int64_t row = tensor.shape.front(), rows = row_count(tensor.shape);
    const bool vector = tensor.shape.size() == 1;
    if (all_ && (rule.parts & Rule::kReads) != 0) {
      DLLM_CHECK_OK(fold_gain(tensor, rule, row, rows));
      rotate_rows(residual_, row, rows, row);
    }
    if ((rule.parts & Rule::kReadsValues) != 0) rotate_rows(heads_, row, rows, row);
    if ((rule.parts & Rule::kMakesValues) != 0) {
      const std::int64_t outputs = vector ? row : rows, kept = outputs - desc_.kv_heads * desc_.head_dim;
      // Of a fused projection only the last rows are values.
      rotate_outputs(heads_, vector ? 1 : row, kept, outputs);
    }
    if (all_ && (rule.parts & Rule::kWrites) != 0) rotate_outputs(residual_, vector ? 1 : row, 0, vector ? row : rows);
    return std::as_bytes(std::span(values_));
  }

 private:
  Expected<void> fold_gain(const SourceTensor& tensor, const Rule& rule, std::int64_t row, std::int64_t rows) {
    if (rule.gain.empty()) return {};
    const std::string name = std::string(split_name(tensor.name).first) + std::string(rule.gain);
    const SourceTensor* const norm = source_.find(name);
    if (norm == nullptr || norm->shape != Shape{row})
      return Error{ErrorCode::kUnsupported, "the norm before it is missing", tensor.name, "leave --rotate out"};
    const std::vector<float> gain = decode(*norm);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < row; ++i)
        values_[static_cast<std::size_t>(r * row + i)] *= gain[static_cast<std::size_t>(i)];
    return {};
  }

  /// Every `order` values of each row.
  void rotate_rows(const Hadamard& matrix, std::int64_t row, std::int64_t rows, std::int64_t count) {
    const std::int64_t n = matrix.order();
    parallel_pieces(pool_, rows, 16, [&](std::int64_t first, std::int64_t end, int) {
      std::vector<double> x(static_cast<std::size_t>(n));
      for (std::int64_t r = first; r < end; ++r)
        for (std::int64_t at = r * row; at < r * row + count; at += n) rotate_at(matrix, at, 1, x);
    });
  }

  /// Rows [first, end) of a matrix with rows of `row` values, in groups of `order`: its outputs.
  void rotate_outputs(const Hadamard& matrix, std::int64_t row, std::int64_t first, std::int64_t end) {
    const std::int64_t n = matrix.order(), pieces = (row + kColumns - 1) / kColumns;
    parallel_pieces(pool_, pieces, 1, [&](std::int64_t from, std::int64_t to, int) {
      std::vector<double> x(static_cast<std::size_t>(n));
      for (std::int64_t group = first; group < end; group += n)
        for (std::int64_t c = from * kColumns; c < std::min(row, to * kColumns); ++c)
          rotate_at(matrix, group * row + c, row, x);
    });
  }

  void rotate_at(const Hadamard& matrix, std::int64_t at, std::int64_t stride, std::vector<double>& x) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<double>(values_[static_cast<std::size_t>(at) + i * static_cast<std::size_t>(stride)]);
    matrix.apply(x);
    for (std::size_t i = 0; i < x.size(); ++i)
      values_[static_cast<std::size_t>(at) + i * static_cast<std::size_t>(stride)] = static_cast<float>(x[i]);
  }

  const ModelSource& source_;
  const ModelDesc& desc_;
  Hadamard residual_, heads_;
  bool all_;
  ThreadPool pool_;
  std::vector<float> values_;
};

/// A head that shares the embedding's table would need its gain in it.
std::vector<SourceTensor> with_own_head(const ModelSource& source, Rotation rotation) {
  std::vector<SourceTensor> tensors = source.tensors;
  const SourceTensor* const embedding = source.find("token_embd.weight");
  if (rotation != Rotation::kQuarot || source.find("output.weight") != nullptr || embedding == nullptr) return tensors;
  tensors.push_back(*embedding);
  tensors.back().name = "output.weight";
  return tensors;
}

Expected<void> write_rotated(const ModelSource& source, Rotator& rotator, Rotation rotation, const std::string& path,
                             const std::function<bool()>& cancelled) {
  Metadata metadata = source.metadata;
  metadata.set(kRotationKey, MetaValue::string(kNames[static_cast<std::size_t>(rotation)]));
  GgufWriter writer(std::move(metadata));
  const std::vector<SourceTensor> tensors = with_own_head(source, rotation);
  std::vector<std::byte> buffer;
  for (const SourceTensor& tensor : tensors) {
    DLLM_TRY(const Rule* const rule, rule_of(tensor));
    const bool changes = rotator.changes(*rule);
    DLLM_CHECK_OK(writer.add(tensor.name, changes ? TensorType::kF32 : tensor.type, tensor.shape,
                             [&, rule, changes]() -> Expected<std::span<const std::byte>> {
                               if (cancelled && cancelled())
                                 return Error{ErrorCode::kCancelled, "the rotation was cancelled", tensor.name, ""};
                               if (!changes) return tensor_bytes(tensor, buffer);
                               return rotator.rotate(tensor, *rule);
                             }));
  }
  return writer.write(path, {.replace = false, .check = [&source] { return source.check(); }});
}

}  // namespace

Expected<Rotation> rotation_named(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<Rotation>(i);
  return Error{ErrorCode::kUsage, fmt::format("'{}' is unknown", name), "--rotate", "one of none, heads, quarot"};
}

Expected<ModelSource> rotated_source(const ModelSource& source, Rotation rotation, int threads, const std::string& path,
                                     const std::function<bool()>& cancelled) {
  if (source.metadata.contains(kRotationKey))
    return Error{ErrorCode::kUsage, "the model is rotated already", source.name, "start from the original"};
  DLLM_TRY(const auto model, Model::load(source, Log()));
  const ModelDesc& desc = model->desc();
  DLLM_TRY(Hadamard residual, Hadamard::create(rotation == Rotation::kQuarot ? desc.width : 1, kResidualSeed));
  DLLM_TRY(Hadamard heads, Hadamard::create(desc.head_dim, 0));
  Rotator rotator(source, desc, std::move(residual), std::move(heads), rotation, threads);
  DLLM_CHECK_OK(write_rotated(source, rotator, rotation, path, cancelled));
  auto opened = open_source(path);
  // Nobody else needs the name, and without one nothing is left whatever ends this process.
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  if (opened) opened->name = source.name;
  return opened;
}

}  // namespace dllm
