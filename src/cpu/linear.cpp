#include "cpu/linear.h"

#include <algorithm>

namespace dllm::cpu {

LinearRunner::LinearRunner(const KernelSet& kernels, ThreadPool& pool, bool exact)
    : kernels_(kernels), pool_(pool), exact_(exact) {
  scratch_.reserve(kLinearScratchBytes * static_cast<std::size_t>(pool.size()));
}

void* LinearRunner::scratch(int worker) {
  return scratch_.data() + kLinearScratchBytes * static_cast<std::size_t>(worker);
}

bool LinearRunner::uses_int8(const WeightView& weight) const { return !exact_ && kernels_.runs_int8(weight.type); }

void LinearRunner::quantize(const float* x, std::int64_t rows, std::int64_t k) {
  const std::size_t value_bytes = bytes_of<std::int8_t>(rows * k);
  const std::size_t scale_bytes = bytes_of<float>(rows * k / kScaleBlock);
  activations_.reserve(value_bytes + scale_bytes + bytes_of<std::int32_t>(rows * k / kSumBlock));
  quantized_.stride = k;
  quantized_.values = activations_.as<std::int8_t>();
  // Rows are multiples of 32 values, so the arrays that follow stay aligned.
  quantized_.scales = reinterpret_cast<float*>(activations_.data() + value_bytes);
  quantized_.sums = reinterpret_cast<std::int32_t*>(activations_.data() + value_bytes + scale_bytes);
  const QuantizedRows q = quantized_;
  parallel_items(pool_, rows, k, [&](std::int64_t row, int) {
    kernels_.quantize_row(x + row * k, k, q.values + row * k, q.scales + row * k / kScaleBlock,
                          q.sums + row * k / kSumBlock);
  });
}

LinearArgs LinearRunner::prepare(const WeightView& weight, const float* bias, const float* x, std::int64_t rows,
                                 std::int64_t value) {
  const Codec& format = codec(weight.type);
  LinearArgs args;
  args.type = weight.type;
  args.weight = weight.data.data();
  args.k = weight.shape[0];
  args.row_bytes = format.row_bytes(args.k);
  args.rows = rows;
  args.bias = bias;
  args.dequantize = format.dequantize;
  args.block_elems = format.block_elems;
  args.block_bytes = format.block_bytes;
  if (!uses_int8(weight)) {
    args.x = x;
    return args;
  }
  if (quantized_value_ != value) {
    quantize(x, rows, args.k);
    quantized_value_ = value;
  }
  args.quantized = quantized_;
  return args;
}

void LinearRunner::run(const LinearArgs& base, std::int64_t n, float* out) {
  if (base.rows == 0) return;
  LinearArgs args = base;
  args.out = out;
  args.out_stride = n;
  // A small product is one task and stays on this thread: waking another costs some microseconds. A large one is cut
  // into tasks of at least 256 k multiplies, with several per thread for an even finish.
  const std::int64_t panels = (n + kPanel - 1) / kPanel, macs_per_panel = args.rows * args.k * kPanel;
  const bool small = panels * macs_per_panel <= std::int64_t{1} << 20;
  const std::int64_t most = std::max<std::int64_t>(1, panels / (4 * pool_.size()));
  const std::int64_t panels_per_task =
      small ? panels : std::clamp<std::int64_t>((std::int64_t{1} << 18) / macs_per_panel, 1, most);
  parallel(pool_, (panels + panels_per_task - 1) / panels_per_task, [&](std::int64_t task, int worker) {
    const std::int64_t begin = task * panels_per_task * kPanel;
    kernels_.linear(args, begin, std::min(n, begin + panels_per_task * kPanel), scratch(worker));
  });
}

}  // namespace dllm::cpu
