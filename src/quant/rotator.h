#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "dllm/error.h"
#include "model/model_desc.h"
#include "model/source.h"
#include "numerics/hadamard.h"

namespace dllm {

/// What a rotation does to a tensor.
struct RotationRule {
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
  std::string_view gain = {};                       ///< the norm before it
  std::int64_t OnlineRotation::* online = nullptr;  ///< the order of the transform of its input
};
/// Errors: kUnsupported (a tensor that no rotation is known for).
Expected<const RotationRule*> rotation_rule(const SourceTensor& tensor);

/// The number in "blk.N.", else 0.
std::size_t layer_of(const SourceTensor& tensor);

/// Which parts of a model are rotated.
struct RotationPlan {
  bool residual = false;
  std::vector<bool> heads;  ///< by layer
  OnlineRotation online{};
};

/// Turns tensors one after the other.
class Rotator {
 public:
  /// The online transforms stay those of `plan`. Errors: kUnsupported (an order without a known Hadamard matrix).
  /// `source` and `desc` outlive the result.
  static Expected<Rotator> create(const ModelSource& source, const ModelDesc& desc, RotationPlan plan, int threads);

  const RotationPlan& plan() const { return plan_; }
  void set_plan(RotationPlan plan) { plan_ = std::move(plan); }
  bool changes(const SourceTensor& tensor, const RotationRule& rule) const;
  /// The order of the transform that the matrix expects of its input; 0: none.
  std::int64_t online_order(const RotationRule& rule) const {
    return rule.online == nullptr ? 0 : plan_.online.*rule.online;
  }
  /// The tensor's values after the rotation, valid until the next call. Errors: kUnsupported (a gain is missing).
  Expected<std::span<const float>> rotate(const SourceTensor& tensor, const RotationRule& rule);

 private:
  Rotator(const ModelSource& source, const ModelDesc& desc, Hadamard residual, Hadamard heads,
          std::vector<Hadamard> online, RotationPlan plan, int threads);
  bool rotates_heads(const SourceTensor& tensor) const;
  Expected<void> fold_gain(const SourceTensor& tensor, const RotationRule& rule, std::int64_t row, std::int64_t rows);
  void rotate_rows(const Hadamard& matrix, std::int64_t row, std::int64_t rows, std::int64_t count);
  void rotate_outputs(const Hadamard& matrix, std::int64_t row, std::int64_t first, std::int64_t end);
  void rotate_at(const Hadamard& matrix, std::int64_t at, std::int64_t stride, std::vector<double>& x);

  const ModelSource* source_;
  const ModelDesc* desc_;
  Hadamard residual_, heads_;
  std::vector<Hadamard> online_;
  RotationPlan plan_;
  std::unique_ptr<ThreadPool> pool_;
  std::vector<float> values_;
};

}  // namespace dllm
