#pragma once
// Products with weights as the file has them and with packed floats, for selftest.cpp.

#include <cstdint>
#include <cstring>
#include <vector>

#include "cpu/kernels/against_oracle.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/kernels/test_data.h"

namespace dllm::cpu::test {

class ProductCheck : public AgainstOracle {
 public:
  using AgainstOracle::AgainstOracle;

 protected:
  void linear(LinearArgs args, std::int64_t n, const char* what) {
    const std::vector<float> bias = random_floats(random_, n);
    for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
      const auto product = [&](const KernelSet& s, Decoding decoding) {
        alignas(64) static unsigned char scratch[kLinearScratchBytes];
        std::vector<float> out(static_cast<std::size_t>(args.rows * n), 7.f);
        args.bias = b, args.out = out.data(), args.out_stride = n, args.decoding = decoding;
        s.linear(args, 0, n, scratch);
        return out;
      };
      const std::vector<float> expected = product(oracle_, Decoding::kDefault);
      for (Tested& tested : sets_) {
        if (args.operands == LinearOperands::kPackedCodes && tested.set->exact_tile_rows > 0 &&
            args.rows >= tested.set->exact_tile_rows)
          same(tested, "linear, on tiles", expected, product(*tested.set, Decoding::kTiles));
        if (tested.only_super) continue;
        same(tested, what, expected, product(*tested.set, Decoding::kDefault));
        if (args.operands == LinearOperands::kPackedCodes && tested.set->per_block_rows > 0)
          same(tested, "linear, decoded per block", expected, product(*tested.set, Decoding::kPerBlock));
      }
    }
  }

  void float_linear(std::int64_t k, std::int64_t m) {
    for (TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) float_linear(k, m, type);
  }
  void float_linear(std::int64_t k, std::int64_t m, TensorType type) {
    const std::vector<float> x = random_floats(random_, m * k);
    const std::int64_t n = 1 + random_.below(m == 270 ? 100 : 40);
    std::vector<std::byte> weight(static_cast<std::size_t>(n * k) * 4);
    if (type == TensorType::kF32) {
      const std::vector<float> w = random_floats(random_, n * k);
      std::memcpy(weight.data(), w.data(), weight.size());
    } else {
      weight = random_words(random_, type, n * k);
    }
    LinearArgs args;
    args.plain.type = type, args.plain.weight = weight.data();
    args.plain.row_bytes = k * (type == TensorType::kF32 ? 4 : 2), args.plain.x = x.data();
    args.k = k, args.rows = m;
    linear(args, n, "linear (float)");
    packed_floats(args, type, weight, x, n);
  }

  /// Packed weights against the reference. F32 and F16: against its kernel for unpacked weights, since the order of
  /// additions is the same; BF16: also in pairs, if the set supports them. Includes rows that begin within a group.
  void packed_floats(const LinearArgs& plain, TensorType type, const std::vector<std::byte>& weight,
                     const std::vector<float>& x, std::int64_t n) {
    TestMatrix matrix(type, weight, n, plain.k);
    const bool bf16 = type == TensorType::kBF16;
    const RowForm form = bf16 ? RowForm::kRounded : RowForm::kFloats;
    TestGroups expected_rows(oracle_, form, x, plain.rows);
    LinearArgs packed;
    matrix.add_to(packed);
    packed.k = plain.k, packed.rows = plain.rows, packed.n = n;
    LinearArgs oracle = plain;
    if (bf16) oracle = packed, oracle.grouped = {expected_rows.floats(), form};
    compare_rows(oracle, n, [&](Tested& tested, auto check) {
      if (tested.only_super) return;
      TestGroups rows(*tested.set, form, x, plain.rows);
      packed.grouped = {rows.floats(), form};
      check("linear (packed floats)", packed);
      TestGroups pairs(*tested.set, RowForm::kPairs, x, plain.rows);
      if (!bf16 || !tested.set->bf16_dots() || plain.k % 2 != 0 || !pairs.regular || !matrix.regular()) return;
      packed.grouped = {pairs.floats(), RowForm::kPairs};
      check("linear (BF16 pairs)", packed);
    });
    if (runs_in_steps(type, plain.k)) float_steps(packed, matrix.regular(), x, n);
  }

  /// BF16 and F16 in the arithmetic `super`: rows of floats, and tiles where the set has them.
  void float_steps(LinearArgs packed, bool regular, const std::vector<float>& x, std::int64_t n) {
    const bool bf16 = packed.panels.format->type == TensorType::kBF16;
    const RowForm form = bf16 ? RowForm::kRounded : RowForm::kSplit;
    const RowForm tiled = bf16 ? RowForm::kTiles : RowForm::kSplitTiles;
    packed.panels.in_steps = true;
    TestGroups expected_rows(oracle_, form, x, packed.rows);
    LinearArgs oracle = packed;
    oracle.grouped = {expected_rows.floats(), form};
    compare_rows(oracle, n, [&](Tested& tested, auto check) {
      TestGroups rows(*tested.set, form, x, packed.rows);
      packed.grouped = {rows.floats(), form};
      if (!tested.only_super) check(bf16 ? "linear (BF16 in steps)" : "linear (F16 in steps)", packed);
      TestGroups tiles(*tested.set, tiled, x, packed.rows);
      if (!tested.set->bf16_tiles || !tiles.regular || !regular) return;
      packed.grouped = {tiles.floats(), tiled};
      check(bf16 ? "linear (BF16 tiles)" : "linear (F16 tiles)", packed);
    });
  }

  /// The product from the first, the middle and the last row on. `run(tested, check)` calls check(what, args) for each
  /// form of the arguments that the set supports.
  template <class Run>
  void compare_rows(const LinearArgs& oracle, std::int64_t n, Run run) {
    for (std::int64_t row : {std::int64_t{0}, oracle.rows / 2, oracle.rows - 1}) {
      const std::vector<float> bias = random_floats(random_, n);
      const auto product = [&](const KernelSet& s, const LinearArgs& whole) {
        alignas(64) static unsigned char scratch[kLinearScratchBytes];
        std::vector<float> out(static_cast<std::size_t>((oracle.rows - row) * n), 7.f);
        LinearArgs args = from_row(whole, row);
        args.rows = oracle.rows - row, args.out = out.data(), args.out_stride = n;
        args.bias = row == 0 ? bias.data() : nullptr;
        s.linear(args, 0, n, scratch);
        return out;
      };
      const std::vector<float> expected = product(oracle_, oracle);
      for (Tested& tested : sets_)
        run(tested, [&](const char* what, const LinearArgs& args) {
          same(tested, what, expected, product(*tested.set, args));
        });
    }
  }

  Random random_{20};
};

}  // namespace dllm::cpu::test
