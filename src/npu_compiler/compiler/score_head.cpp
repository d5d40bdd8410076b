// The LM head: a matrix product whose output is never stored as a whole. Slabs of VLEN logits alternate between two
// buffers; each is stored, or reduced, while the next is computed.

#include <fmt/format.h>

#include <array>
#include <bit>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/compiler/context.h"

namespace dllm::npu {
namespace {

constexpr std::uint32_t kLogitAddress = 7;
class Head {
 public:
  Head(StepContext& context, const op::ScoreHead& o)
      : c_(context),
        e_(context.e),
        x_(context.place(o.x)),
        vocab_(context.graph.weight(o.weight).shape[1]),
        softcap_(o.softcap),
        rows_(context.spec.scored()) {
    has_bias_ = o.bias != kNoId && c_.layout.find(o.bias, WeightUse::kRow) != nullptr;
  }

  Expected<void> run(const op::ScoreHead& o) {
    DLLM_TRY(buffers_, c_.acquire(2 * x_.stride, "logits"));
    if (has_bias_) {
      DLLM_TRY(bias_, c_.resident(o.bias, WeightUse::kRow));
    }
    const bool reduced = c_.options.head == HeadMode::kReduced;
    DLLM_CHECK_OK(reduced ? prepare_reduction() : prepare_store());
    if (c_.counts) {
      lower_matrix(c_, 0, 0, 0, {});  // finishes the work before it
      if (reduced) c_.release(scratch_);
      c_.release(buffers_);
      return {};
    }
    e_.store_int(Gp(), Gp(), offset_word());
    if (has_bias_) e_.store_int(e_.reg(c_.address(bias_.row)), Gp(), bias_word());
    const auto finish = [&](const Gp& slab, bool last) {
      if (has_bias_) add_bias(slab);
      if (softcap_ != 0.f) cap(slab);
      reduced ? reduce(slab, last) : store(slab);
      const Gp both = e_.reg(c_.address(buffers_.row) + c_.address(buffers_.row + x_.stride));
      e_.subtract(slab, both, slab);
    };
    const MatrixSink sink{.first = c_.address(buffers_.row),
                          .second = {},
                          .finish_slab = [&](const Gp& slab) { finish(slab, false); },
                          .behind_block = {},
                          .finish_last = [&](const Gp& slab) { finish(slab, true); }};
    lower_matrix(c_, c_.address(x_.row), x_.stride, x_.stride / c_.machine.blen, sink);
    if (reduced) finish_reduction();
    c_.release(buffers_);
    return {};
  }

 private:
  // Between slabs these are saved in INT_MEM: a product uses all registers.
  std::uint32_t offset_word() const { return scratch_word(c_.machine, 4); }
  std::uint32_t bias_word() const { return scratch_word(c_.machine, 5); }
  std::int64_t slabs() const { return ceil_div(vocab_, c_.vlen()); }
  MxFormat logits_format() const { return c_.options.logits.value_or(c_.machine.lane_format()); }

  void add_bias(const Gp& slab) {
    const Gp row = e_.reg(), bias = e_.reg();
    e_.load_int(bias, Gp(), bias_word());
    e_.copy(row, slab);
    e_.loop(x_.stride, [&] {
      e_.vector_vv(Op::V_ADD_VV, row, row, bias);
      e_.add(row, row, c_.vlen());
    });
    e_.add(bias, bias, c_.vlen());
    e_.store_int(bias, Gp(), bias_word());
  }

  /// z <- c tanh(z / c) = c (2 / (1 + e^(z (-2/c))) - 1), each operation rounded.
  void cap(const Gp& slab) {
    constexpr std::uint32_t kSteep = 1, kOne = 2, kTwo = 3, kCap = 4;  // f registers: free between slabs
    e_.load_fp(kSteep, c_.number(-2.0f / softcap_));
    e_.load_fp(kOne, c_.one());
    e_.load_fp(kTwo, c_.number(2.0f));
    e_.load_fp(kCap, c_.number(softcap_));
    const Gp row = e_.reg();
    e_.copy(row, slab);
    e_.loop(x_.stride, [&] {
      e_.vector_vf(Op::V_MUL_VF, row, row, kSteep);
      e_.vector_v(Op::V_EXP_V, row, row);
      e_.vector_vf(Op::V_ADD_VF, row, row, kOne);
      e_.vector_v(Op::V_RECI_V, row, row);
      e_.vector_vf(Op::V_MUL_VF, row, row, kTwo);
      e_.vector_vf(Op::V_SUB_VF, row, row, kOne);
      e_.vector_vf(Op::V_MUL_VF, row, row, kCap);
      e_.add(row, row, c_.vlen());
    });
  }

  Expected<void> prepare_store() {
    const auto elements = static_cast<std::uint64_t>(slabs() * x_.stride * c_.vlen());
    const MxFormat format = logits_format();
    scales_ = format.element_bytes(elements);
    DLLM_TRY(c_.result.logits, c_.hbm_area(scales_ + format.scale_bytes(elements), "logits"));
    c_.result.logit_rows = x_.stride;
    return {};
  }

  void store(const Gp& slab) {
    const Gp offset = e_.reg();
    e_.load_int(offset, Gp(), offset_word());
    e_.set_address(kLogitAddress, c_.result.logits);
    e_.set_csr(Csr::kFormatActivation, mx_format_number(logits_format()));
    if (logits_format().scaled()) e_.set_scale(scales_);
    e_.set_csr(Csr::kStoreVRows, static_cast<std::uint32_t>(x_.stride));
    e_.transfer(Op::H_STORE_V, slab, offset, kLogitAddress, false, 0);
    e_.add(offset, offset, x_.stride * c_.vlen());
    e_.store_int(offset, Gp(), offset_word());
  }

  // One-pass softmax over slabs: running maximum m with its token, running sum s relative to it (Milakov and
  // Gimelshein, arXiv 1805.02867). FP_MEM: m of all rows, then s; of draws also the winners' keys and their logits.
  enum Fp : std::uint32_t { kMax = 1, kOld = 2, kShrink = 3, kSum = 4, kKey = 5, kLogit = 6 };
  bool draws() const { return c_.options.draws(); }
  std::uint32_t keys() const { return static_cast<std::uint32_t>(2 * rows_); }
  std::uint32_t logits() const { return static_cast<std::uint32_t>(3 * rows_); }
  std::uint32_t streams() const { return c_.result.draws + static_cast<std::uint32_t>(rows_); }

  Expected<void> prepare_reduction() {
    const auto rows = static_cast<std::uint32_t>(rows_);
    c_.result.predicted = kTokenWords + static_cast<std::uint32_t>(c_.token_words());
    c_.result.confidence = rows;
    c_.result.draws = c_.result.predicted + rows;
    const std::uint64_t ints =
        c_.result.predicted + static_cast<std::uint64_t>(head_words(c_.options, rows_)) + kScratchWords;
    const std::uint64_t floats = std::uint64_t{draws() ? 4u : 2u} * rows;
    if (ints > c_.machine.int_words || floats > c_.machine.fp_words)
      return Error{ErrorCode::kUsage,
                   fmt::format("{} scored rows need {} words of FP_MEM and {} of INT_MEM", rows, floats, ints),
                   "npu compiler", "fewer rows, or --set sram.fp_words=N and sram.int_words=N with a larger N"};
    DLLM_TRY(scratch_, c_.acquire(1, "a row of intermediate results"));
    std::vector<Bf16> limit(to_size(c_.vlen()), c_.lowest()), factor(limit.size());
    const std::int64_t last = vocab_ - (slabs() - 1) * c_.vlen();
    for (std::size_t lane = 0; lane < to_size(last); ++lane) limit[lane] = c_.infinity(), factor[lane] = c_.one();
    if (last < c_.vlen()) {
      DLLM_TRY(limit_, c_.constant_row(limit));
      DLLM_TRY(factor_, c_.constant_row(factor));
    }
    if (c_.counts) return {};
    e_.load_fp(kMax, c_.minus_infinity());
    if (draws()) set_up_draws();
    const Gp word = e_.reg(0);
    e_.loop(rows_, [&] {
      e_.store_fp_word(kMax, word, 0);
      e_.store_fp_word(0, word, c_.result.confidence);
      e_.store_int(Gp(), word, c_.result.predicted);
      if (draws()) {
        e_.store_fp_word(kMax, word, keys());
        e_.store_fp_word(0, word, logits());
      }
      e_.add(word, word, 1);
    });
    return {};
  }

  void set_up_draws() {
    const auto bits = std::bit_cast<std::uint64_t>(c_.options.temperature);
    e_.set_csr(Csr::kDrawTemperatureLow, static_cast<std::uint32_t>(bits));
    e_.set_csr(Csr::kDrawTemperatureHigh, static_cast<std::uint32_t>(bits >> 32));
    e_.set_csr(Csr::kDrawPrecision, 2);
    e_.set_csr(Csr::kDrawTokens, static_cast<std::uint32_t>(vocab_));
    const Gp value = e_.reg();
    for (std::uint32_t word = streams() + static_cast<std::uint32_t>(rows_);
         const Csr csr : {Csr::kDrawSeedLow, Csr::kDrawSeedHigh, Csr::kDrawStep, Csr::kDrawExcept}) {
      e_.load_int(value, Gp(), word++);
      e_.set_csr(csr, value);
    }
  }

  /// The row at p into the running maximum, and its token: the maximum's, or the draw's. `position` is scratch.
  void search(const Gp& p, const Gp& first, const Gp& word, const Gp& token, const Gp& position) {
    if (!draws()) {
      e_.load_int(token, word, c_.result.predicted);
      e_.max_index(token, p, first, kMax);
      return;
    }
    e_.load_int(position, word, streams());
    e_.set_csr(Csr::kDrawStream, position);
    e_.load_int(position, word, c_.result.draws);
    e_.load_int(token, word, c_.result.predicted);
    e_.load_fp_word(kKey, word, keys());
    e_.load_fp_word(kLogit, word, logits());
    e_.reduce(Op::V_RED_MAX, kMax, p);
    e_.draw(token, p, first, kKey, kLogit, position);
  }

  void reduce(const Gp& slab, bool last) {
    const bool partial = last && factor_.rows != 0;
    const Gp p = e_.reg(), first = e_.reg(), word = e_.reg(0), token = e_.reg(), t = e_.reg(c_.address(scratch_.row));
    const Gp limit = partial ? e_.reg(c_.address(limit_.row)) : Gp(),
             factor = partial ? e_.reg(c_.address(factor_.row)) : Gp(), position = draws() ? e_.reg() : Gp();
    e_.copy(p, slab);
    e_.load_int(first, Gp(), offset_word());
    e_.loop(rows_, [&] {
      if (partial) e_.vector_vv(Op::V_MIN_VV, p, p, limit);
      e_.load_fp_word(kMax, word, 0);
      e_.scalar(Op::S_MV_FP, kOld, kMax);
      search(p, first, word, token, position);
      e_.scalar(Op::S_SUB_FP, kShrink, kOld, kMax);
      e_.scalar(Op::S_EXP_FP, kShrink, kShrink);
      e_.load_fp_word(kSum, word, c_.result.confidence);
      e_.scalar(Op::S_MUL_FP, kSum, kSum, kShrink);
      e_.vector_vf(Op::V_SUB_VF, t, p, kMax);
      e_.vector_v(Op::V_EXP_V, t, t);
      if (partial) e_.vector_vv(Op::V_MUL_VV, t, t, factor);
      e_.reduce(Op::V_RED_SUM, kSum, t);
      e_.store_fp_word(kMax, word, 0);
      e_.store_fp_word(kSum, word, c_.result.confidence);
      e_.store_int(token, word, c_.result.predicted);
      if (draws()) {
        e_.store_fp_word(kKey, word, keys());
        e_.store_fp_word(kLogit, word, logits());
      }
      e_.add(p, p, c_.vlen());
      e_.add(word, word, 1);
    });
    e_.add(first, first, c_.vlen());
    e_.store_int(first, Gp(), offset_word());
  }

  void finish_reduction() {
    const Gp word = e_.reg(0);
    e_.loop(rows_, [&] {
      e_.load_fp_word(kSum, word, c_.result.confidence);
      e_.scalar(Op::S_RECI_FP, kSum, kSum);
      if (draws()) {
        e_.load_fp_word(kMax, word, 0);
        e_.load_fp_word(kLogit, word, logits());
        e_.scalar(Op::S_SUB_FP, kLogit, kLogit, kMax);
        e_.scalar(Op::S_EXP_FP, kLogit, kLogit);
        e_.scalar(Op::S_MUL_FP, kSum, kSum, kLogit);
      }
      e_.store_fp_word(kSum, word, c_.result.confidence);
      e_.add(word, word, 1);
    });
    c_.release(scratch_);
  }

  StepContext& c_;
  Emitter& e_;
  ValuePlace x_;
  std::int64_t vocab_;
  float softcap_;
  std::int64_t rows_;
  std::uint64_t scales_ = 0;  ///< bytes of the logits' elements, which precede their scales
  bool has_bias_ = false;
  Buffer buffers_, bias_, scratch_, limit_, factor_;
};

}  // namespace

Expected<void> lower(StepContext& c, const op::ScoreHead& o) { return Head(c, o).run(o); }

}  // namespace dllm::npu
