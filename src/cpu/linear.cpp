#include "cpu/linear.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "cpu/decoding.h"

namespace dllm::cpu {

LinearRunner::LinearRunner(const KernelSet& kernels, ThreadPool& pool, std::optional<Decoding> decoding, bool residual)
    : kernels_(kernels), pool_(pool), decoding_(decoding), residual_(residual) {
  scratch_.reserve(kLinearScratchBytes * static_cast<std::size_t>(pool.size()));
}

LinearArgs LinearRunner::weight_args(const WeightView& weight, const PackedWeight* packed, std::int64_t rows) const {
  LinearArgs args;
  args.k = weight.shape[0];
  args.n = weight.shape.size() > 1 ? weight.shape[1] : 1;
  if (packed == nullptr) {
    const Codec& format = codec(weight.type);
    args.plain = {.type = weight.type,
                  .weight = weight.data.data(),
                  .row_bytes = format.row_bytes(args.k),
                  .dequantize = format.dequantize,
                  .block_elems = format.block_elems,
                  .block_bytes = format.block_bytes};
    return args;
  }
  if (packed->super) {
    args.operands = LinearOperands::kSuper;
    args.panels.data = packed->panels;
    args.panels.super = &*packed->super;
    return args;
  }
  args.operands = packs_floats(*packed->format) ? LinearOperands::kPackedFloats : LinearOperands::kPackedCodes;
  args.panels = {packed->format, &packed->layout, packed->panels, packed->regular, packed->in_steps};
  if (args.operands == LinearOperands::kPackedCodes)
    args.decoding = decoding_ ? *decoding_ : faster_decoding(kernels_, *packed->format, rows);
  return args;
}

void* LinearRunner::scratch(int worker) {
  return scratch_.data() + kLinearScratchBytes * static_cast<std::size_t>(worker);
}

bool LinearRunner::exact_activations(const PackedFormat& format, std::int64_t k) {
  // Rounded scales trade noise for speed. A model of short rows does not need the speed: it spends its time elsewhere.
  constexpr std::int64_t kShortRow = 1024;
  return format.exact_rows || k < kShortRow;
}

LinearArgs LinearRunner::prepare(const WeightView& weight, const PackedWeight* packed, const float* bias,
                                 const float* x, std::int64_t rows, std::int64_t value) {
  LinearArgs args = weight_args(weight, packed, rows);
  args.rows = rows;
  args.bias = bias;
  if (packed == nullptr) {
    args.plain.x = x;
    return args;
  }
  if (args.operands == LinearOperands::kPackedFloats) {
    args.grouped = groups_.of(kernels_, pool_, *packed, value, x, rows);
    return args;
  }
  if (args.operands == LinearOperands::kSuper) {
    args.super_rows = super_.of(kernels_, pool_, value, x, rows, args.k);
    return args;
  }
  const bool exact = exact_activations(*packed);
  Activations* quantized = activations_.find(value, exact);
  if (quantized == nullptr) {
    quantized = &activations_.begin(value, rows, args.k, exact, residual_);
    parallel_items(pool_, rows, args.k,
                   [&](std::int64_t row, int) { quantized->quantize(kernels_, x + row * args.k, row, 0, args.k); });
  }
  args.quantized = quantized->view(*packed->format);
  return args;
}

std::optional<QuantizedRows> LinearRunner::residual_rows(const LinearArgs& args, std::int64_t value) {
  if (!residual_ || args.operands != LinearOperands::kPackedCodes) return std::nullopt;
  const PackedFormat& format = *args.panels.format;
  Activations* const made = activations_.find(value, exact_activations(format, args.k));
  assert(made != nullptr && made->residual() != nullptr);
  return made->residual()->view(format);
}

namespace {

// Outputs are distributed in pairs of panels, which the kernels process.
constexpr std::int64_t kPanelPair = 2 * kPanel;

std::int64_t pairs_of(const Product& product) { return (product.n + kPanelPair - 1) / kPanelPair; }

/// Pairs that make a worthwhile piece: at least a million multiplications. A product of less than one piece stays on
/// this thread, because waking another costs some microseconds. Rows of floats that exceed L2 are worth sharing among
/// some pairs (kernels/floats-inl.h).
std::int64_t grain(const LinearArgs& args) {
  const std::int64_t pairs = (std::int64_t{1} << 20) / (args.rows * args.k * kPanelPair) + 1;
  const std::int64_t rows = args.rows * args.k;
  std::int64_t shared = 1;
  if (args.operands == LinearOperands::kPackedFloats && !on_tiles(args) && rows > std::int64_t{1} << 17) shared = 4;
  if (on_tiles(args) && rows > std::int64_t{1} << 19) shared = kSuperPairs;
  return std::max(pairs, shared);
}

}  // namespace

void LinearRunner::accumulate(LinearArgs args, std::int64_t first, std::int64_t last, int worker) {
  thread_local std::vector<float> sums;
  const std::int64_t count = last - first, stride = args.out_stride;
  float* const out = args.out + first - args.out_origin;
  sums.resize(static_cast<std::size_t>(args.rows * count));
  args.bias = nullptr;
  args.out = sums.data();
  args.out_stride = count;
  args.out_origin = first;
  kernels_.linear(args, first, last, scratch(worker));
  for (std::int64_t r = 0; r < args.rows; ++r)
    for (std::int64_t i = 0; i < count; ++i) out[r * stride + i] += sums[static_cast<std::size_t>(r * count + i)];
}

/// Some outputs at a time, whose weights are then in the cache the second time.
void LinearRunner::multiply_twice(const Product& product, std::int64_t begin, std::int64_t end, int worker) {
  LinearArgs args = product.args;
  args.out = product.out;
  args.out_stride = product.n;
  LinearArgs again = args;
  again.quantized = *product.residual;
  const std::int64_t step = on_tiles(args) ? kSuperPairs : 1;
  for (std::int64_t pair = begin; pair < end; pair += step) {
    const std::int64_t first = pair * kPanelPair, last = std::min(product.n, std::min(end, pair + step) * kPanelPair);
    kernels_.linear(args, first, last, scratch(worker));
    accumulate(again, first, last, worker);
  }
}

void LinearRunner::multiply(const Product& product, std::int64_t begin, std::int64_t end, int worker) {
  if (product.residual) return multiply_twice(product, begin, end, worker);
  LinearArgs args = product.args;
  args.out = product.out;
  args.out_stride = product.n;
  kernels_.linear(args, begin * kPanelPair, std::min(product.n, end * kPanelPair), scratch(worker));
}

void LinearRunner::run(std::span<const Product> products) {
  if (products.empty() || products.front().args.rows == 0) return;
  std::int64_t pairs = 0;
  for (const Product& product : products) pairs += pairs_of(product);
  parallel_ranges(pool_, pairs, grain(products.front().args), [&](std::int64_t begin, std::int64_t end, int worker) {
    std::int64_t origin = 0;  // of the product's pairs among all pairs
    for (const Product& product : products) {
      const std::int64_t first = std::max(begin, origin), last = std::min(end, origin + pairs_of(product));
      if (first < last) multiply(product, first - origin, last - origin, worker);
      origin += pairs_of(product);
    }
  });
}

void LinearRunner::run_gated(const Product& gate, const Product& up, const Combine& combine) {
  assert(gate.n == up.n);
  if (gate.args.rows == 0) return;
  parallel_ranges(pool_, pairs_of(gate), grain(gate.args), [&](std::int64_t begin, std::int64_t end, int worker) {
    // In a pool of one, the range is everything.
    const std::int64_t step = on_tiles(gate.args)                                   ? kSuperPairs
                              : gate.args.operands == LinearOperands::kPackedFloats ? end - begin
                                                                                    : 1;
    for (std::int64_t pair = begin; pair < end; pair += step) {
      const std::int64_t last = std::min(end, pair + step);
      multiply(gate, pair, last, worker);
      multiply(up, pair, last, worker);
      combine(pair * kPanelPair, std::min(gate.n, last * kPanelPair));
    }
  });
}

}  // namespace dllm::cpu
