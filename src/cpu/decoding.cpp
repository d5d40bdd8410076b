#include "cpu/decoding.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "cpu/activations.h"
#include "cpu/buffer.h"

namespace dllm::cpu {
namespace {

/// A product whose weights stay in L2, of four tiles of rows.
class Trial {
 public:
  Trial(const KernelSet& kernels, const PackedFormat& format)
      : kernels_(kernels), layout_(packed_layout(format, kDepth)) {
    constexpr std::int64_t kPanels = kOutputs / kPanel;
    panels_.reserve(static_cast<std::size_t>(kPanels * layout_.bytes));
    // Codes do not change the time, nor do scales as long as they are normal numbers: two bytes of 0x3c are 1.06 as a
    // half, one is 2^-67 as an exponent of MXFP4.
    std::memset(panels_.data(), 0x3c, panels_.size());
    scratch_.reserve(kLinearScratchBytes);
    out_.reserve(bytes_of<float>(kRows * kOutputs));
    std::vector<float> x(static_cast<std::size_t>(kDepth));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    rows_.begin(kRows, kDepth, format.exact_rows);
    for (std::int64_t row = 0; row < kRows; ++row) rows_.quantize(kernels, x.data(), row, 0, kDepth);
    args_.operands = LinearOperands::kPackedCodes;
    args_.panels = {&format, &layout_, reinterpret_cast<const std::uint8_t*>(panels_.data()), true};
    args_.quantized = rows_.view(format);
    args_.k = kDepth, args_.rows = kRows, args_.n = kOutputs;
    args_.out = out_.as<float>(), args_.out_stride = kOutputs;
  }

  double seconds(Decoding decoding) {
    args_.decoding = decoding;
    const auto start = std::chrono::steady_clock::now();
    kernels_.linear(args_, 0, kOutputs, scratch_.data());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  static constexpr std::int64_t kDepth = 2048, kRows = 24, kOutputs = 128;

  const KernelSet& kernels_;
  const PackedLayout layout_;
  Buffer panels_, scratch_, out_;
  Activations rows_;
  LinearArgs args_;
};

Decoding measure_decoding(const KernelSet& kernels, const PackedFormat& format) {
  Trial trial(kernels, format);
  // Of alternating runs the fastest: disturbances only make a run slower.
  double usual = std::numeric_limits<double>::infinity(), per_block = usual;
  for (int round = 0; round < 8; ++round) {
    usual = std::min(usual, trial.seconds(Decoding::kDefault));
    per_block = std::min(per_block, trial.seconds(Decoding::kPerBlock));
  }
  constexpr double kWorthwhile = 0.95;
  return per_block < kWorthwhile * usual ? Decoding::kPerBlock : Decoding::kDefault;
}

}  // namespace

Decoding faster_decoding(const KernelSet& kernels, const PackedFormat& format, std::int64_t rows) {
  const bool choice = kernels.per_block_rows > 0 && rows >= kernels.per_block_rows;
  if (!choice || !narrower_than_byte(format.codes)) return Decoding::kDefault;
  static std::mutex mutex;
  static std::map<std::pair<const KernelSet*, TensorType>, Decoding> known;
  const std::lock_guard lock(mutex);
  const auto [entry, added] = known.try_emplace({&kernels, format.type}, Decoding::kDefault);
  if (added) entry->second = measure_decoding(kernels, format);
  return entry->second;
}

}  // namespace dllm::cpu
