#include "cpu/experts.h"

#include <algorithm>
#include <cstring>

#include "numerics/tensor_type.h"

namespace dllm::cpu {
namespace {

constexpr std::int64_t kPair = 2 * kPanel;  ///< columns, as the kernels take them
/// Size of a tile of products: 128 KiB. Two of them and the rows' codes stay in a second-level cache of 1 MiB.
constexpr std::int64_t kTileFloats = std::int64_t{1} << 15;
constexpr std::int64_t kInnerColumns = 256;  ///< of gate and up at once
constexpr std::int64_t kOuterColumns = 512;  ///< of down: the codes of all pairs are read once per this many

/// Whether the product's rows are stored in groups, each expert's beginning with a new one.
bool rows_in_groups(LinearOperands operands) {
  return operands == LinearOperands::kPackedFloats || operands == LinearOperands::kSuper;
}

const std::uint8_t* panels_of(const PackedWeight& packed, std::int64_t expert) {
  return packed.panels + expert * packed.panels_per_expert() * packed.panel_bytes();
}

std::int64_t matrix_bytes_of(const WeightView& view) {
  if (view.matrix_bytes > 0) return static_cast<std::int64_t>(view.matrix_bytes);
  return codec(view.type).row_bytes(view.shape[0]) * view.shape[1];
}

/// The product of one expert over its rows [pair, pair + count) of `args`.
LinearArgs of_expert(const LinearArgs& args, const PackedWeight* packed, std::int64_t matrix_bytes,
                     const ExpertGroup& group, std::int64_t pair, std::int64_t count) {
  LinearArgs own = rows_in_groups(args.operands) ? args : from_row(args, pair);
  if (args.operands == LinearOperands::kPackedFloats) {
    own.grouped.groups += group.first_of(args.grouped.form) * group_stride(args.grouped.form, args.k);
    own.grouped.first_row = pair - group.first;
  }
  if (args.operands == LinearOperands::kSuper)
    own.super_rows.first_row = group.sixteen * kSuperRows + pair - group.first;
  own.rows = count;
  if (packed == nullptr) {
    own.plain.weight += group.expert * matrix_bytes;
  } else {
    own.panels.data = panels_of(*packed, group.expert);
  }
  return own;
}

/// Whether two products can share their rows: the same form, rounding and corrections.
bool same_rows(const PackedWeight* a, const PackedWeight* b) {
  if (a == nullptr || b == nullptr) return a == b;
  if (a->super || b->super) return a->super && b->super;
  if (packs_floats(*a->format) || packs_floats(*b->format))
    return a->format == b->format && a->regular == b->regular && a->in_steps == b->in_steps;
  return a->format->exact_rows == b->format->exact_rows && a->format->zero == b->format->zero &&
         a->format->group == b->format->group && a->format->has_min == b->format->has_min;
}

/// Rows of a tile of products: whole groups.
std::int64_t rows_of_tile(const LinearArgs& args, std::int64_t columns) {
  const std::int64_t group = on_tiles(args) ? kSuperRows : kRowGroup;
  return kTileFloats / columns / group * group;
}

}  // namespace

ExpertRunner::ExpertRunner(const KernelSet& kernels, ThreadPool& pool, LinearRunner& linear)
    : kernels_(kernels), pool_(pool), linear_(linear) {
  static_assert(kRowGroup * std::max(kInnerColumns, kOuterColumns) <= kTileFloats);
}

float* ExpertRunner::tile(int worker, int which) {
  return tiles_.as<float>() + (2 * std::int64_t{worker} + which) * kTileFloats;
}

void ExpertRunner::group_rows(const PackedWeight& packed, const float* x, std::span<const std::int32_t> row_of,
                              PairRows& rows, LinearArgs& args) {
  if (args.operands == LinearOperands::kSuper)
    rows.quantize_super(kernels_, x, row_of, pairs_, pool_, args);
  else
    rows.interleave(kernels_, packed, x, row_of, pairs_, pool_, args);
}

void ExpertRunner::make_inputs(const ExpertArgs& args) {
  hadamard_ = args.hadamard;
  const ExpertStack* const stacks[] = {&args.gate, &args.up, &args.down};
  for (int i = 0; i < 3; ++i) packed_[i] = stacks[i]->packed, matrix_bytes_[i] = matrix_bytes_of(*stacks[i]->view);
  first_inner_ = 0;
  for (std::size_t rank = 0; rank < args.parts.size() && static_cast<int>(rank) < args.ranks->rank(); ++rank)
    first_inner_ += args.parts[rank];
  const auto inputs = [&](const ExpertStack& stack, PairRows& rows) {
    LinearArgs made = linear_.weight_args(*stack.view, stack.packed, args.rows);
    if (!rows_in_groups(made.operands))
      return rows.gather(linear_.prepare(*stack.view, stack.packed, nullptr, args.x, args.rows, args.value),
                         pairs_.row_of, pool_);
    group_rows(*stack.packed, args.x, pairs_.row_of, rows, made);
    return made;
  };
  gate_ = inputs(args.gate, gate_rows_);
  if (same_rows(packed_[0], packed_[1])) {
    up_ = linear_.weight_args(*args.up.view, args.up.packed, args.rows);
    up_.rows = gate_.rows;
    up_.plain.x = gate_.plain.x;
    up_.grouped = gate_.grouped;
    up_.quantized = gate_.quantized;
    up_.super_rows = gate_.super_rows;
  } else {
    up_ = inputs(args.up, up_rows_);
  }
  down_ = linear_.weight_args(*args.down.view, args.down.packed, args.rows);
  down_.rows = gate_.rows;
  exact_inner_ = false;
  if (down_.operands != LinearOperands::kPackedCodes) {
    inner_memory_.reserve(bytes_of<float>(down_.rows * down_.k));
    down_.plain.x = inner_memory_.as<float>();
  } else {
    down_.quantized = place_rows(inner_memory_, down_.rows, down_.k);
    exact_inner_ = LinearRunner::exact_activations(*packed_[2]);
  }
  regular_inner_.store(!exact_inner_, std::memory_order_relaxed);
  if (hadamard_.order != 0) unrotated_.reserve(bytes_of<float>(down_.rows * down_.k));
}

/// SwiGLU's results in the form that `down` reads, or before interleaving: floats, or codes of the same columns.
void ExpertRunner::keep_inner(const float* tile, std::int64_t pair, std::int64_t rows, std::int64_t column,
                              std::int64_t columns) {
  if (down_.operands != LinearOperands::kPackedCodes) {
    for (std::int64_t i = 0; i < rows; ++i)
      std::memcpy(inner_memory_.as<float>() + (pair + i) * down_.k + column, tile + i * columns,
                  static_cast<std::size_t>(columns) * sizeof(float));
    return;
  }
  const PackedFormat& format = *packed_[2]->format;
  const auto part = [&](std::int64_t i) {
    const std::int64_t at = (pair + i) * down_.k + column;
    QuantizedRows q = down_.quantized;
    q.values += (pair + i) * q.stride + column;
    q.scales += at / kScaleBlock, q.exponents += at / kScaleBlock, q.multiples += at / kScaleBlock;
    q.offsets += at / kScaleBlock, q.sums += at / kSumBlock, q.corrections += at / format.group;
    return q;
  };
  for (std::int64_t i = 0; i < rows; ++i) {
    const QuantizedRows q = part(i);
    kernels_.quantize_row(tile + i * columns, columns, exact_inner_, q.values, q.scales, q.sums);
  }
  // Not in the same loop: sums are stored one by one and would be read as vectors here, which waits for the stores.
  // With exact scales no exponents are added, and only minima need offsets.
  const bool derives = !exact_inner_ || format.has_min;
  for (std::int64_t i = 0; i < rows; ++i) {
    const QuantizedRows q = part(i);
    if (derives && !derive_groups(q, 0, columns / kScaleBlock)) regular_inner_.store(false, std::memory_order_relaxed);
    fill_corrections(q, 1, columns, format);
  }
}

void ExpertRunner::inner_columns(const ExpertGroup& group, std::int64_t column, std::int64_t columns, int worker) {
  const std::int64_t step = rows_of_tile(gate_, kInnerColumns);
  for (std::int64_t pair = group.first; pair < group.last; pair += step) {
    const std::int64_t rows = std::min(step, group.last - pair);
    const auto multiply = [&](const LinearArgs& args, int which) {
      LinearArgs own = of_expert(args, packed_[which], matrix_bytes_[which], group, pair, rows);
      // The following columns come next; after the last of them, the next expert's first.
      if (packed_[which] != nullptr && group.expert + 1 < packed_[which]->experts)
        own.follow = panels_of(*packed_[which], group.expert + 1);
      own.out = tile(worker, which);
      own.out_stride = columns;
      own.out_origin = column;
      kernels_.linear(own, column, column + columns, linear_.scratch(worker));
      return own.out;
    };
    float* const gate = multiply(gate_, 0);
    const float* const up = multiply(up_, 1);
    gated_(gate, up, rows * columns, gate);
    if (hadamard_.order == 0) {
      keep_inner(gate, pair, rows, first_inner_ + column, columns);
      continue;
    }
    for (std::int64_t i = 0; i < rows; ++i)
      std::memcpy(unrotated_.as<float>() + (pair + i) * down_.k + first_inner_ + column, gate + i * columns,
                  static_cast<std::size_t>(columns) * sizeof(float));
  }
}

/// The other ranks' columns of what `down` reads.
void ExpertRunner::gather_inner(const ExpertArgs& args) {
  if (args.parts.empty()) return;
  if (hadamard_.order != 0) return args.ranks->columns_in_place(down_.rows, args.parts, unrotated_.as<float>());
  if (down_.operands != LinearOperands::kPackedCodes)
    return args.ranks->columns_in_place(down_.rows, args.parts, inner_memory_.as<float>());
  const bool regular = args.ranks->codes(down_.quantized, down_.rows, args.parts);
  if (!regular) regular_inner_.store(false, std::memory_order_relaxed);
  fill_corrections(down_.quantized, down_.rows, down_.k, *packed_[2]->format);
}

/// A transform needs whole rows, which no task of the first pass has.
void ExpertRunner::rotate_inner() {
  if (hadamard_.order == 0) return;
  parallel_items(pool_, down_.rows, 16 * down_.k, [&](std::int64_t pair, int) {
    float* const row = unrotated_.as<float>() + pair * down_.k;
    kernels_.hadamard(hadamard_, row, down_.k, row);
    keep_inner(row, pair, 1, 0, down_.k);
  });
}

void ExpertRunner::inner_pass() {
  const std::int64_t inner = gate_.n, pairs_of_columns = (inner + kPair - 1) / kPair;
  const auto items = static_cast<std::int64_t>(pairs_.groups.size()) * pairs_of_columns;
  parallel_ranges(pool_, items, kInnerColumns / kPair, [&](std::int64_t begin, std::int64_t end, int worker) {
    while (begin < end) {  // in a pool of one, a range is everything
      const std::int64_t first = begin % pairs_of_columns;
      const std::int64_t count = std::min({end - begin, pairs_of_columns - first, kInnerColumns / kPair});
      inner_columns(pairs_.groups[static_cast<std::size_t>(begin / pairs_of_columns)], first * kPair,
                    std::min(inner, (first + count) * kPair) - first * kPair, worker);
      begin += count;
    }
  });
}

void ExpertRunner::finish_inner() {
  // Whether exponents may be added affects only a product's speed, not its bits.
  down_.quantized.regular = regular_inner_.load(std::memory_order_relaxed);
  if (rows_in_groups(down_.operands)) group_rows(*packed_[2], inner_memory_.as<float>(), {}, down_rows_, down_);
}

void ExpertRunner::outer_columns(std::int64_t column, std::int64_t columns, std::int64_t rows, int worker, float* out) {
  for (std::int64_t row = 0; row < rows; ++row)
    std::memset(out + row * down_.n + column, 0, static_cast<std::size_t>(columns) * sizeof(float));
  const std::int64_t step = rows_of_tile(down_, kOuterColumns);
  for (std::size_t g = 0; g < pairs_.groups.size(); ++g) {
    const ExpertGroup& group = pairs_.groups[g];
    for (std::int64_t pair = group.first; pair < group.last; pair += step) {
      LinearArgs own = of_expert(down_, packed_[2], matrix_bytes_[2], group, pair, std::min(step, group.last - pair));
      if (packed_[2] != nullptr) {
        // This thread next reads the next expert's part of these columns, not the adjacent columns.
        own.n = column + columns;
        if (g + 1 < pairs_.groups.size())
          own.follow = panels_of(*packed_[2], pairs_.groups[g + 1].expert) + column / kPanel * packed_[2]->layout.bytes;
      }
      float* const products = own.out = tile(worker, 0);
      own.out_stride = columns;
      own.out_origin = column;
      kernels_.linear(own, column, column + columns, linear_.scratch(worker));
      for (std::int64_t i = 0; i < own.rows; ++i) {
        const auto at = static_cast<std::size_t>(pair + i);
        kernels_.add_scaled(products + i * columns, pairs_.weight_of[at], columns,
                            out + pairs_.row_of[at] * down_.n + column);
      }
    }
  }
}

void ExpertRunner::run(const ExpertArgs& args, float* out) {
  tiles_.reserve(bytes_of<float>(2 * std::int64_t{pool_.size()} * kTileFloats));
  gated_ = args.activation == Activation::kGeluTanh ? kernels_.geglu : kernels_.swiglu;
  pairs_.sort(args.route, args.rows, args.used, args.gate.view->shape[2]);
  make_inputs(args);
  inner_pass();
  gather_inner(args);
  rotate_inner();
  finish_inner();
  const std::int64_t width = down_.n, outer_pairs = (width + kPair - 1) / kPair;
  parallel_ranges(pool_, outer_pairs, kOuterColumns / kPair, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (; begin < end; begin += kOuterColumns / kPair) {
      const std::int64_t last = std::min(end, begin + kOuterColumns / kPair);
      outer_columns(begin * kPair, std::min(width, last * kPair) - begin * kPair, args.rows, worker, out);
    }
  });
}

}  // namespace dllm::cpu
