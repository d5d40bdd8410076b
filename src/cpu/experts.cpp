#include "cpu/experts.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "numerics/tensor_type.h"

namespace dllm::cpu {
namespace {

constexpr std::int64_t kPair = 2 * kPanel;  ///< columns, as the kernels take them
/// Of a tile of products: 128 KiB. Two of them and the rows' codes stay in a second-level cache of 1 MiB.
constexpr std::int64_t kTileFloats = std::int64_t{1} << 15;
constexpr std::int64_t kInnerColumns = 128;  ///< of gate and up at once
constexpr std::int64_t kOuterColumns = 512;  ///< of down: the codes of all pairs are read once per so many

template <class T>
void copy_row(T* to, std::int64_t row, const T* from, std::int64_t source, std::int64_t count) {
  std::memcpy(to + row * count, from + source * count, static_cast<std::size_t>(count) * sizeof(T));
}

/// What of a stack a product needs; its rows of x are set elsewhere.
LinearArgs stack_args(const ExpertStack& stack) {
  LinearArgs args;
  args.k = stack.view->shape[0];
  args.n = stack.view->shape[1];
  if (stack.packed == nullptr) {
    const Codec& format = codec(stack.view->type);
    args.type = stack.view->type;
    args.weight = stack.view->data.data();
    args.row_bytes = format.row_bytes(args.k);
    args.dequantize = format.dequantize;
    args.block_elems = format.block_elems;
    args.block_bytes = format.block_bytes;
    return args;
  }
  args.format = stack.packed->format;
  args.layout = &stack.packed->layout;
  args.packed = stack.packed->panels;
  args.regular = stack.packed->regular;
  return args;
}

/// The product of one expert over the rows [row, row + count) of `args`.
LinearArgs of_expert(const LinearArgs& args, const PackedWeight* packed, std::int64_t expert, std::int64_t row,
                     std::int64_t count) {
  LinearArgs own = from_row(args, row);
  own.rows = count;
  if (packed == nullptr) {
    own.weight += expert * args.n * args.row_bytes;
    return own;
  }
  own.packed += expert * packed->panels_per_expert() * packed->layout.bytes;
  // Without a gap between experts the next one's panels may be fetched ahead as if they were this one's.
  if (args.n % kPanel == 0) own.n = args.n * (packed->experts - expert);
  return own;
}

/// Whether two products can share the codes of their rows: the same rounding and the same corrections.
bool same_codes(const PackedWeight* a, const PackedWeight* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->format->exact_rows == b->format->exact_rows && a->format->zero == b->format->zero &&
         a->format->group == b->format->group;
}

std::int64_t rows_of_tile(std::int64_t columns) { return std::max<std::int64_t>(1, kTileFloats / columns); }

}  // namespace

LinearArgs GatheredRows::gather(const LinearArgs& from, std::span<const std::int32_t> order, ThreadPool& pool) {
  LinearArgs args = from;
  const auto count = static_cast<std::int64_t>(order.size());
  const std::int64_t k = from.k;
  args.rows = count;
  if (from.x != nullptr) {
    memory_.reserve(bytes_of<float>(count * k));
    auto* to = memory_.as<float>();
    args.x = to;
    parallel_items(pool, count, k,
                   [&](std::int64_t i, int) { copy_row(to, i, from.x, order[static_cast<std::size_t>(i)], k); });
    return args;
  }
  const QuantizedRows& q = from.quantized;
  QuantizedRows& to = args.quantized = place_rows(memory_, count, k);
  to.regular = q.regular;
  const std::int64_t groups = k / kScaleBlock;
  parallel_items(pool, count, 2 * k, [&](std::int64_t i, int) {
    const std::int64_t row = order[static_cast<std::size_t>(i)];
    std::memcpy(to.values + i * to.stride, q.values + row * q.stride, static_cast<std::size_t>(k));
    copy_row(to.scales, i, q.scales, row, groups);
    copy_row(to.exponents, i, q.exponents, row, groups);
    copy_row(to.multiples, i, q.multiples, row, groups);
    copy_row(to.offsets, i, q.offsets, row, groups);
    copy_row(to.sums, i, q.sums, row, 2 * groups);
    copy_row(to.corrections, i, q.corrections, row, k / from.format->group);
  });
  return args;
}

ExpertRunner::ExpertRunner(const KernelSet& kernels, ThreadPool& pool, LinearRunner& linear)
    : kernels_(kernels), pool_(pool), linear_(linear) {
  static_assert(kInnerColumns <= kTileFloats && kOuterColumns <= kTileFloats);
}

float* ExpertRunner::tile(int worker, int which) {
  return tiles_.as<float>() + (2 * std::int64_t{worker} + which) * kTileFloats;
}

/// Sorts the pairs by expert, then by row.
void ExpertRunner::group(const ExpertArgs& args) {
  const auto experts = static_cast<std::size_t>(args.gate.view->shape[2]);
  std::vector<std::int64_t> first(experts + 1, 0);
  const auto expert_of = [&](std::int64_t row, std::int64_t j) {
    return static_cast<std::size_t>(args.route[row * 2 * args.used + j]);
  };
  for (std::int64_t row = 0; row < args.rows; ++row)
    for (std::int64_t j = 0; j < args.used; ++j) ++first[expert_of(row, j) + 1];
  groups_.clear();
  for (std::size_t e = 0; e < experts; ++e) {
    if (first[e + 1] > 0) groups_.push_back({static_cast<std::int64_t>(e), first[e], first[e] + first[e + 1]});
    first[e + 1] += first[e];
  }
  row_of_.resize(static_cast<std::size_t>(args.rows * args.used));
  weight_of_.resize(row_of_.size());
  for (std::int64_t row = 0; row < args.rows; ++row)
    for (std::int64_t j = 0; j < args.used; ++j) {
      const auto pair = static_cast<std::size_t>(first[expert_of(row, j)]++);
      row_of_[pair] = static_cast<std::int32_t>(row);
      weight_of_[pair] = args.route[(row * 2 + 1) * args.used + j];
    }
}

void ExpertRunner::make_inputs(const ExpertArgs& args) {
  const auto prepare = [&](const ExpertStack& stack) {
    return linear_.prepare(*stack.view, stack.packed, nullptr, args.x, args.rows, args.value);
  };
  gate_ = gate_rows_.gather(prepare(args.gate), row_of_, pool_);
  if (same_codes(args.gate.packed, args.up.packed)) {
    const QuantizedRows shared = gate_.quantized;
    const float* const floats = gate_.x;
    up_ = stack_args(args.up);
    up_.rows = gate_.rows;
    up_.quantized = shared;
    up_.x = floats;
  } else {
    up_ = up_rows_.gather(prepare(args.up), row_of_, pool_);
  }
  down_ = stack_args(args.down);
  down_.rows = gate_.rows;
  if (args.down.packed == nullptr) {
    inner_memory_.reserve(bytes_of<float>(down_.rows * down_.k));
    down_.x = inner_memory_.as<float>();
  } else {
    down_.quantized = place_rows(inner_memory_, down_.rows, down_.k);
  }
  packed_[0] = args.gate.packed, packed_[1] = args.up.packed, packed_[2] = args.down.packed;
  exact_inner_ = args.down.packed != nullptr && LinearRunner::exact_activations(*args.down.packed);
}

/// SwiGLU's results as `down` reads them: floats, or codes of the same columns.
void ExpertRunner::keep_inner(const float* tile, std::int64_t pair, std::int64_t rows, std::int64_t column,
                              std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i, ++pair, tile += columns) {
    if (packed_[2] == nullptr) {
      std::memcpy(inner_memory_.as<float>() + pair * down_.k + column, tile,
                  static_cast<std::size_t>(columns) * sizeof(float));
      continue;
    }
    QuantizedRows part = down_.quantized;
    const std::int64_t at = pair * down_.k + column, group = at / kScaleBlock;
    part.values += pair * part.stride + column;
    part.scales += group, part.exponents += group, part.multiples += group, part.offsets += group;
    part.sums += at / kSumBlock;
    part.corrections += at / packed_[2]->format->group;
    kernels_.quantize_row(tile, columns, exact_inner_, part.values, part.scales, part.sums);
    derive_groups(part, 0, columns / kScaleBlock);
    fill_corrections(part, 1, columns, *packed_[2]->format);
  }
}

void ExpertRunner::inner_columns(const Group& group, std::int64_t column, std::int64_t columns, int worker) {
  const std::int64_t step = rows_of_tile(columns);
  for (std::int64_t pair = group.first; pair < group.last; pair += step) {
    const std::int64_t rows = std::min(step, group.last - pair);
    const auto multiply = [&](const LinearArgs& args, int which) {
      LinearArgs own = of_expert(args, packed_[which], group.expert, pair, rows);
      own.out = tile(worker, which);
      own.out_stride = columns;
      own.out_origin = column;
      kernels_.linear(own, column, column + columns, linear_.scratch(worker));
      return own.out;
    };
    float* const gate = multiply(gate_, 0);
    const float* const up = multiply(up_, 1);
    gated_(gate, up, rows * columns, gate);
    keep_inner(gate, pair, rows, column, columns);
  }
}

void ExpertRunner::outer_columns(std::int64_t column, std::int64_t columns, std::int64_t rows, int worker, float* out) {
  for (std::int64_t row = 0; row < rows; ++row)
    std::memset(out + row * down_.n + column, 0, static_cast<std::size_t>(columns) * sizeof(float));
  const std::int64_t step = rows_of_tile(columns);
  for (const Group& group : groups_)
    for (std::int64_t pair = group.first; pair < group.last; pair += step) {
      LinearArgs own = of_expert(down_, packed_[2], group.expert, pair, std::min(step, group.last - pair));
      float* const products = own.out = tile(worker, 0);
      own.out_stride = columns;
      own.out_origin = column;
      kernels_.linear(own, column, column + columns, linear_.scratch(worker));
      for (std::int64_t i = 0; i < own.rows; ++i) {
        const auto at = static_cast<std::size_t>(pair + i);
        const float weight = weight_of_[at];
        const float* from = products + i * columns;
        float* to = out + row_of_[at] * down_.n + column;
        for (std::int64_t c = 0; c < columns; ++c) to[c] += weight * from[c];
      }
    }
}

void ExpertRunner::run(const ExpertArgs& args, float* out) {
  tiles_.reserve(bytes_of<float>(2 * std::int64_t{pool_.size()} * kTileFloats));
  gated_ = args.activation == Activation::kGeluTanh ? kernels_.geglu : kernels_.swiglu;
  group(args);
  make_inputs(args);

  const std::int64_t inner = gate_.n, pairs_of_columns = (inner + kPair - 1) / kPair;
  const auto items = static_cast<std::int64_t>(groups_.size()) * pairs_of_columns;
  pool_.parallel_ranges(items, kInnerColumns / kPair, [&](std::int64_t begin, std::int64_t end, int worker) {
    while (begin < end) {  // of a pool of one, a range is everything
      const std::int64_t first = begin % pairs_of_columns;
      const std::int64_t count = std::min({end - begin, pairs_of_columns - first, kInnerColumns / kPair});
      inner_columns(groups_[static_cast<std::size_t>(begin / pairs_of_columns)], first * kPair,
                    std::min(inner, (first + count) * kPair) - first * kPair, worker);
      begin += count;
    }
  });
  // Whether exponents may be added changes no bit of a product, only its speed.
  down_.quantized.regular = false;
  if (packed_[2] != nullptr && !exact_inner_) {
    bool regular = true;
    const std::int64_t groups = down_.rows * down_.k / kScaleBlock;
    for (std::int64_t g = 0; g < groups && regular; ++g) {
      const float scale = down_.quantized.scales[g];
      regular = scale == 0 || (scale >= 0x1p-60f && scale <= 0x1p60f);
    }
    down_.quantized.regular = regular;
  }

  const std::int64_t width = down_.n, outer_pairs = (width + kPair - 1) / kPair;
  pool_.parallel_ranges(outer_pairs, kOuterColumns / kPair, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (; begin < end; begin += kOuterColumns / kPair) {
      const std::int64_t last = std::min(end, begin + kOuterColumns / kPair);
      outer_columns(begin * kPair, std::min(width, last * kPair) - begin * kPair, args.rows, worker, out);
    }
  });
}

}  // namespace dllm::cpu
