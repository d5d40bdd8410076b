#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "npu_core/machine/machine.h"
#include "test/program_writer.h"
#include "test/vectors.h"

namespace dllm::rtl {

/// Source of random programs over all vector, scalar and control instructions. gp1-gp4 hold rows, gp5-gp8 words, gp9 a
/// length of at most a row, gp10 one of several rows, gp11 any number; gp12 and gp13 are loop counters; gp14 and gp15
/// receive results.
class FullWriter : public ProgramWriter {
 public:
  /// `draws`: with V_RED_DRAW.
  FullWriter(Vectors& random, int vlen, bool draws = false)
      : ProgramWriter(random),
        vlen_(static_cast<std::uint32_t>(vlen)),
        blen_(4),
        mlen_(static_cast<std::uint32_t>(vlen)),
        draws_(draws) {}
  /// Without transfers and formats, for a core whose matrix unit has these lanes.
  FullWriter(Vectors& random, const npu::MachineConfig& core)
      : ProgramWriter(random),
        vlen_(static_cast<std::uint32_t>(core.vlen)),
        blen_(static_cast<std::uint32_t>(core.blen)),
        mlen_(static_cast<std::uint32_t>(core.mlen)),
        draws_(core.noise),
        transfers_(false) {}

  /// New addresses, lengths, mask and control registers.
  void registers();
  void instruction();
  /// Loops of up to three levels, some of which a branch leaves.
  void loop();
  /// An access or a value at a limit, on either side; or loops at the depth of the stack.
  void edge();

 private:
  std::string lower_row() { return fmt::format("gp{}", 1 + random_.below(2)); }
  std::uint32_t offset() { return random_.one_in(4) ? 0 : random_.below(20); }
  std::string any() { return fmt::format("gp{}", random_.below(16)); }
  std::string result() { return random_.one_in(16) ? "gp0" : fmt::format("gp{}", 14 + random_.below(2)); }
  template <std::size_t n>
  const char* one_of(const char* const (&names)[n]) {
    return names[random_.below(n)];
  }

  void row_operation();
  void reduction();
  void selection();
  void scalar_fp();
  void scalar_int();
  void setter();
  void control_register();
  void branch();
  void prefetch();
  void draw();

  void row_edge();
  void word_edge();
  void map_edge();
  void select_edge();
  void router_edge();
  void value_edge();
  void loop_edge();
  std::uint32_t near(std::uint32_t limit);

  std::uint32_t vlen_, blen_, mlen_, words_[4] = {}, long_ = 0;
  bool draws_ = false, transfers_ = true;
  int labels_ = 0;
};

}  // namespace dllm::rtl
