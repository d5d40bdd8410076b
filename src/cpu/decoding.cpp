#include "cpu/decoding.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/forks.h"
#include "cpu/activations.h"
#include "cpu/buffer.h"

namespace dllm::cpu {
namespace {

/// A product whose weights stay in L2.
class Trial {
 public:
  Trial(const KernelSet& kernels, const PackedFormat& format, std::int64_t rows)
      : kernels_(kernels), layout_(packed_layout(format, kDepth)) {
    constexpr std::int64_t kPanels = kOutputs / kPanel;
    panels_.reserve(static_cast<std::size_t>(kPanels * layout_.bytes));
    // Codes do not change the time, nor do scales as long as they are normal numbers: two bytes of 0x3c are 1.06 as a
    // half, one is 2^-67 as an exponent of MXFP4.
    std::memset(panels_.data(), 0x3c, panels_.size());
    scratch_.reserve(kLinearScratchBytes);
    out_.reserve(bytes_of<float>(rows * kOutputs));
    std::vector<float> x(static_cast<std::size_t>(kDepth));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    rows_.begin(rows, kDepth, format.exact_rows);
    for (std::int64_t row = 0; row < rows; ++row) rows_.quantize(kernels, x.data(), row, 0, kDepth);
    args_.operands = LinearOperands::kPackedCodes;
    args_.panels = {&format, &layout_, reinterpret_cast<const std::uint8_t*>(panels_.data()), true};
    args_.quantized = rows_.view(format);
    args_.k = kDepth, args_.rows = rows, args_.n = kOutputs;
    args_.out = out_.as<float>(), args_.out_stride = kOutputs;
  }

  double seconds(Decoding decoding) {
    args_.decoding = decoding;
    const auto start = std::chrono::steady_clock::now();
    kernels_.linear(args_, 0, kOutputs, scratch_.data());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  static constexpr std::int64_t kDepth = 2048, kOutputs = 128;

  const KernelSet& kernels_;
  const PackedLayout layout_;
  Buffer panels_, scratch_, out_;
  Activations rows_;
  LinearArgs args_;
};

/// Whether a product of `rows` may have the form.
bool has_form(const KernelSet& kernels, const PackedFormat& format, std::int64_t rows, Decoding form) {
  switch (form) {
    case Decoding::kPerBlock:
      return kernels.per_block_rows > 0 && rows >= kernels.per_block_rows && narrower_than_byte(format.codes);
    case Decoding::kTiles:
      return kernels.exact_tile_rows > 0 && rows >= kernels.exact_tile_rows && !packs_floats(format);
    case Decoding::kDefault:
      break;
  }
  return true;
}

Decoding measure_decoding(const KernelSet& kernels, const PackedFormat& format, std::int64_t rows) {
  std::vector<Decoding> forms;
  for (Decoding form : {Decoding::kDefault, Decoding::kPerBlock, Decoding::kTiles})
    if (has_form(kernels, format, rows, form)) forms.push_back(form);
  Trial trial(kernels, format, rows);
  // Of alternating runs the fastest: disturbances only make a run slower.
  std::vector<double> seconds(forms.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < 8; ++round)
    for (std::size_t i = 0; i < forms.size(); ++i) seconds[i] = std::min(seconds[i], trial.seconds(forms[i]));
  constexpr double kWorthwhile = 0.95;
  const auto fastest = static_cast<std::size_t>(std::ranges::min_element(seconds) - seconds.begin());
  return seconds[fastest] < kWorthwhile * seconds[0] ? forms[fastest] : Decoding::kDefault;
}

}  // namespace

Decoding faster_decoding(const KernelSet& kernels, const PackedFormat& format, std::int64_t rows) {
  if (!has_form(kernels, format, rows, Decoding::kPerBlock) && !has_form(kernels, format, rows, Decoding::kTiles))
    return Decoding::kDefault;
  // The fewer the rows, the larger the share of decoding, so numbers of rows are measured apart where it matters.
  const std::int64_t measured = rows >= 32 ? 32 : rows >= 16 ? 16 : rows;
  const Unforked whole;
  static std::mutex mutex;
  static std::map<std::tuple<const KernelSet*, TensorType, std::int64_t>, Decoding> known;
  const std::lock_guard lock(mutex);
  const auto [entry, added] = known.try_emplace({&kernels, format.type, measured}, Decoding::kDefault);
  if (added) entry->second = measure_decoding(kernels, format, measured);
  return entry->second;
}

}  // namespace dllm::cpu
