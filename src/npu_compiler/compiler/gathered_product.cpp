// Products with a number of rows known only at run time: a register counts the blocks.

#include <array>

#include "npu_compiler/compiler/context.h"

namespace dllm::npu {
namespace {

class Gathered {
 public:
  Gathered(StepContext& context, const GatheredProduct& p)
      : c_(context), e_(context.e), m_(context.machine), p_(p), s_(*p.shape) {}

  /// Slab by slab of the outputs.
  void run() {
    const std::int64_t begin = p_.first, end = begin + s_.n;
    for (std::int64_t lane = begin; lane < end;) {
      const std::int64_t slab = lane / c_.vlen(), next = std::min(end, (slab + 1) * c_.vlen());
      columns(lane - begin, next - lane,
              static_cast<std::int64_t>(c_.address(p_.y_row + slab * p_.stride)) + lane % c_.vlen());
      lane = next;
    }
  }

 private:
  /// `count` outputs from the matrix's row `first` on, to VRAM address `y_at`, for all blocks.
  void columns(std::int64_t first, std::int64_t count, std::int64_t y_at) {
    const Gp blocks = e_.reg();
    e_.load_int(blocks, Gp(), p_.blocks_word);
    e_.when(blocks, [&] {
      const Gp x = e_.reg(c_.address(p_.x_row)), y = e_.reg(static_cast<std::uint32_t>(y_at)), w = e_.reg(),
               to = e_.reg();
      add_word(x, p_.x_word, to);
      add_word(y, p_.y_word, to);
      const AddressStride next_block = e_.step(std::int64_t{m_.blen} * m_.mlen),
                          next_rows = e_.step(std::int64_t{m_.blen} * c_.vlen());
      e_.repeat(blocks, [&] {
        e_.load(w, static_cast<std::uint32_t>(p_.slot + static_cast<std::uint64_t>(first * m_.mlen)));
        add_word(w, p_.slot_word, to);
        set_rows(blocks, to);
        e_.copy(to, y);
        e_.loop(count / m_.blen, [&] {
          contract(x, w);
          e_.write_out(Op::M_MM_WO, to);
          e_.advance(w, next_block);
          e_.add(to, to, m_.blen);
          if (p_.behind) behind({&blocks, &x, &y, &w, &to});
        });
        e_.advance(x, next_rows);
        e_.advance(y, next_rows);
        e_.add(blocks, blocks, -1);
      });
    });
  }

  /// All rows of a block, but those that there are of the last one.
  void set_rows(const Gp& blocks, const Gp& t) {
    e_.add(t, blocks, -1);
    e_.when_else(
        t, [&] { e_.load(t, static_cast<std::uint32_t>(m_.blen)); }, [&] { e_.load_int(t, Gp(), p_.last_rows_word); });
    e_.set_csr(Csr::kMmRows, t);
  }

  void add_word(const Gp& target, std::optional<std::uint32_t> word, const Gp& t) {
    if (!word) return;
    e_.load_int(t, Gp(), *word);
    e_.add(target, target, t);
  }

  /// Other work, which may use this product's registers.
  void behind(std::array<const Gp*, 5> mine) {
    for (std::uint32_t i = 0; i < mine.size(); ++i) {
      e_.store_int(*mine[i], Gp(), scratch_word(m_, kSpillWord + i));
      e_.lend(*mine[i]);
    }
    p_.behind();
    for (std::uint32_t i = 0; i < mine.size(); ++i) {
      e_.reclaim(*mine[i]);
      e_.load_int(*mine[i], Gp(), scratch_word(m_, kSpillWord + i));
    }
  }

  /// One BLEN x BLEN block: the sum over the K tiles, slab of x by slab.
  void contract(const Gp& x, const Gp& w) {
    if (s_.k_tiles == 1) return e_.multiply_tile(Op::M_TMM, x, w);
    constexpr std::int64_t kUnroll = 8;  // tiles, minimum: the loop's own instructions cost issue slots
    const std::int64_t ratio = c_.vlen() / m_.mlen, group = ceil_div(kUnroll, ratio) * ratio;
    const Gp xt = e_.reg(), wt = e_.reg();
    const AddressStride next_tile = e_.step(s_.n * m_.mlen),
                        next_slab = e_.step(p_.stride * c_.vlen() - (c_.vlen() - m_.mlen));
    e_.copy(xt, x);
    e_.copy(wt, w);
    const auto tiles = [&](std::int64_t count, bool last) {
      for (std::int64_t t = 0; t < count; ++t) {
        e_.multiply_tile(Op::M_TMM, xt, wt);
        if (last && t + 1 == count) return;
        e_.advance(wt, next_tile);
        if ((t + 1) % ratio == 0)
          e_.advance(xt, next_slab);
        else
          e_.add(xt, xt, m_.mlen);
      }
    };
    const std::int64_t looped = (s_.k_tiles - 1) / group;
    e_.loop(looped, [&] { tiles(group, false); });
    tiles(s_.k_tiles - looped * group, true);
  }

  StepContext& c_;
  Emitter& e_;
  const MachineConfig& m_;
  const GatheredProduct& p_;
  const MatrixShape& s_;
};

}  // namespace

void lower_gathered(StepContext& c, const GatheredProduct& product) { Gathered(c, product).run(); }

}  // namespace dllm::npu
