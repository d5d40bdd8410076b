#include "cpu/linear.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace dllm::cpu {

LinearRunner::LinearRunner(const KernelSet& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {
  scratch_.reserve(kLinearScratchBytes * static_cast<std::size_t>(pool.size()));
}

void* LinearRunner::scratch(int worker) {
  return scratch_.data() + kLinearScratchBytes * static_cast<std::size_t>(worker);
}

void LinearRunner::quantize(const float* x, std::int64_t rows, std::int64_t k, bool exact) {
  // Rows one cache line apart beyond their length: at a stride of 4096 bytes all rows of a tile would share their sets
  // of the L1 cache.
  const std::int64_t stride = k + 64, groups = rows * k / kScaleBlock;
  const std::size_t value_bytes = bytes_of<std::int8_t>(rows * stride), group_bytes = bytes_of<float>(groups);
  activations_.reserve(value_bytes + 8 * group_bytes);
  std::byte* at = activations_.data();
  const auto take = [&at](std::size_t bytes) { return std::exchange(at, at + bytes); };
  QuantizedRows& q = quantized_;
  q.stride = stride;
  q.values = reinterpret_cast<std::int8_t*>(take(value_bytes));
  q.scales = reinterpret_cast<float*>(take(group_bytes));
  q.exponents = reinterpret_cast<std::int32_t*>(take(group_bytes));
  q.multiples = reinterpret_cast<std::int32_t*>(take(group_bytes));
  q.offsets = reinterpret_cast<float*>(take(group_bytes));
  q.sums = reinterpret_cast<std::int32_t*>(take(2 * group_bytes));
  q.corrections = reinterpret_cast<std::int32_t*>(take(2 * group_bytes));
  std::atomic<bool> regular{true};
  parallel_items(pool_, rows, k, [&](std::int64_t row, int) {
    kernels_.quantize_row(x + row * k, k, exact, q.values + row * stride, q.scales + row * k / kScaleBlock,
                          q.sums + row * k / kSumBlock);
    if (!derive_row(q, row, k) || exact) regular.store(false, std::memory_order_relaxed);
  });
  q.regular = regular;
  corrected_for_ = nullptr;
}

void LinearRunner::group_rows(const float* x, std::int64_t rows, std::int64_t k) {
  const std::int64_t groups = (rows + kRowGroup - 1) / kRowGroup, stride = row_group_stride(k);
  groups_.reserve(bytes_of<float>(groups * stride));
  parallel_items(pool_, groups, k * kRowGroup, [&](std::int64_t g, int) {
    kernels_.interleave(x + g * kRowGroup * k, k, std::min(kRowGroup, rows - g * kRowGroup),
                        groups_.as<float>() + g * stride);
  });
}

LinearArgs LinearRunner::prepare(const WeightView& weight, const PackedWeight* packed, const float* bias,
                                 const float* x, std::int64_t rows, std::int64_t value) {
  LinearArgs args;
  args.k = weight.shape[0];
  args.n = weight.shape.size() > 1 ? weight.shape[1] : 1;
  args.rows = rows;
  args.bias = bias;
  if (packed == nullptr) {
    const Codec& format = codec(weight.type);
    args.type = weight.type;
    args.weight = weight.data.data();
    args.row_bytes = format.row_bytes(args.k);
    args.dequantize = format.dequantize;
    args.block_elems = format.block_elems;
    args.block_bytes = format.block_bytes;
    args.x = x;
    return args;
  }
  args.format = packed->format;
  args.layout = &packed->layout;
  args.packed = packed->panels;
  args.regular = packed->regular;
  if (packs_floats(*packed->format)) {
    if (grouped_value_ != value) group_rows(x, rows, args.k);
    grouped_value_ = value;
    args.groups = groups_.as<float>();
    return args;
  }
  // Rounded scales buy speed with noise. A model of short rows has no use for the speed: it spends its time elsewhere.
  constexpr std::int64_t kShortRow = 1024;
  const bool exact = packed->format->exact_rows || args.k < kShortRow;
  if (quantized_value_ != value || quantized_exactly_ != exact) {
    quantized_exactly_ = exact;
    quantize(x, rows, args.k, exact);
    quantized_value_ = value;
  }
  if (corrected_for_ == nullptr || corrected_for_->zero != packed->format->zero ||
      corrected_for_->group != packed->format->group) {
    fill_corrections(quantized_, rows, args.k, *packed->format);
    corrected_for_ = packed->format;
  }
  args.quantized = quantized_;
  return args;
}

void LinearRunner::run(const LinearArgs& base, std::int64_t n, float* out) {
  if (base.rows == 0) return;
  LinearArgs args = base;
  args.out = out;
  args.out_stride = n;
  // In pairs of panels, as the kernels take them, at least a million multiplications a piece. A product of less than
  // one piece stays on this thread: waking another costs some microseconds.
  constexpr std::int64_t kPair = 2 * kPanel;
  const std::int64_t pairs = (n + kPair - 1) / kPair, macs_per_pair = args.rows * args.k * kPair;
  std::int64_t grain = (std::int64_t{1} << 20) / macs_per_pair + 1;
  // Floats of x that exceed L2 are worth sharing among some pairs (kernels/floats-inl.h).
  if (args.groups != nullptr && args.rows * args.k > std::int64_t{1} << 17) grain = std::max<std::int64_t>(grain, 4);
  pool_.parallel_ranges(pairs, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    kernels_.linear(args, begin * kPair, std::min(n, end * kPair), scratch(worker));
  });
}

}  // namespace dllm::cpu
