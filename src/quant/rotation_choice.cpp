#include "quant/rotation_choice.h"

#include <algorithm>
#include <span>

#include "base/try.h"
#include "quant/tensor_encoder.h"

namespace dllm {
namespace {

constexpr unsigned kStream = RotationRule::kReads | RotationRule::kWrites;
constexpr unsigned kValues = RotationRule::kMakesValues | RotationRule::kReadsValues;

/// Rounding errors of a model's matrices under a plan.
class RoundingErrors {
 public:
  RoundingErrors(const ModelSource& source, const std::vector<TensorType>& types, int threads,
                 const std::function<bool()>& cancelled)
      : source_(source), types_(types), cancelled_(cancelled), encoder_(threads) {}

  /// Sums by layer over the matrices with one of `parts`.
  Expected<std::vector<double>> measure(Rotator& rotator, unsigned parts, std::size_t layers) {
    std::vector<double> sums(layers, 0.0);
    for (std::size_t i = 0; i < source_.tensors.size(); ++i) {
      const SourceTensor& tensor = source_.tensors[i];
      DLLM_TRY(const RotationRule* const rule, rotation_rule(tensor));
      if ((rule->parts & parts) == 0 || !codec(types_[i]).is_block()) continue;
      if (cancelled_ && cancelled_())
        return Error{ErrorCode::kCancelled, "the choice of rotations was cancelled", tensor.name, ""};
      DLLM_TRY(const auto values, rotator.rotate(tensor, *rule));
      DLLM_TRY(const double error, relative_error(tensor, values, types_[i]));
      sums[std::min(layer_of(tensor), layers - 1)] += error;
    }
    return sums;
  }

 private:
  Expected<double> relative_error(const SourceTensor& tensor, std::span<const float> values, TensorType type) {
    const SourceTensor wide{
        .name = tensor.name, .type = TensorType::kF32, .shape = tensor.shape, .data = std::as_bytes(values)};
    DLLM_TRY(const auto bytes, encoder_.encode(wide, type));
    rounded_.resize(values.size());
    codec(type).dequantize(bytes.data(), rounded_.data(), static_cast<std::int64_t>(values.size()));
    double error = 0, size = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double w = static_cast<double>(values[i]), d = w - static_cast<double>(rounded_[i]);
      error += d * d;
      size += w * w;
    }
    return size > 0 ? error / size : 0;
  }

  const ModelSource& source_;
  const std::vector<TensorType>& types_;
  const std::function<bool()>& cancelled_;
  TensorEncoder encoder_;
  std::vector<float> rounded_;
};

double total(const std::vector<double>& sums) {
  double all = 0;
  for (const double sum : sums) all += sum;
  return all;
}

}  // namespace

Expected<void> choose_rotation(const ModelSource& source, const std::vector<TensorType>& types, int threads,
                               const std::function<bool()>& cancelled, Rotator& rotator) {
  RoundingErrors errors(source, types, threads, cancelled);
  const std::size_t layers = rotator.plan().heads.size();
  RotationPlan plan{false, std::vector<bool>(layers, false)};
  double stream[2];
  for (const bool on : {false, true}) {
    plan.residual = on;
    rotator.set_plan(plan);
    DLLM_TRY(const auto sums, errors.measure(rotator, kStream, layers));
    stream[on ? 1 : 0] = total(sums);
  }
  plan.residual = stream[1] < stream[0];
  rotator.set_plan(plan);
  DLLM_TRY(const auto without, errors.measure(rotator, kValues, layers));
  rotator.set_plan({plan.residual, std::vector<bool>(layers, true)});
  DLLM_TRY(const auto with, errors.measure(rotator, kValues, layers));
  for (std::size_t layer = 0; layer < layers; ++layer) plan.heads[layer] = with[layer] < without[layer];
  rotator.set_plan(std::move(plan));
  return {};
}

}  // namespace dllm
