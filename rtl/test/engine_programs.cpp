#include <fmt/format.h>

#include <algorithm>

#include "npu_core/assembler/assembler.h"
#include "npu_core/device/profile.h"
#include "npu_core/sampling/reference.h"
#include "test/checked.h"
#include "test/engine.h"
#include "test/program_writer.h"

namespace dllm::rtl {
namespace {

using npu::Bf16;

/// Source of random instructions. gp1-gp4 hold rows, gp5-gp8 words, gp9 and gp10 lengths, gp11 a count; gp12 and gp13
/// are loop counters; gp14 and gp15 receive results.
class Writer : public ProgramWriter {
 public:
  Writer(Vectors& random, int vlen) : ProgramWriter(random), vlen_(static_cast<std::uint32_t>(vlen)) {}

  void addresses() {
    for (std::uint32_t r = 1; r <= 4; ++r) set(r, random_.below(r <= 2 ? 16 : 24) * vlen_);
    // Close together, so that targets overlap sources, but never so that two sources need opposite orders.
    for (std::uint32_t r = 5; r <= 8; ++r) {
      words_[r - 5] = random_.one_in(2) ? random_.below(150) : 100 + random_.below(8);
      set(r, words_[r - 5]);
    }
    for (std::uint32_t r = 9; r <= 10; ++r) {
      length_[r - 9] = random_.one_in(4) ? vlen_ : random_.below(vlen_ + 1);
      set(r, length_[r - 9]);
    }
    set(11, random_.one_in(6) ? 0xffffffff : random_.below(vlen_ + 2));
  }

  void instruction(ProgramKind kind) {
    static constexpr ProgramKind kAll[] = {ProgramKind::kSelect, ProgramKind::kMap, ProgramKind::kLanes,
                                           ProgramKind::kReductions, ProgramKind::kScalar};
    switch (kind) {
      case ProgramKind::kSelect:
        return select();
      case ProgramKind::kMap:
        return map();
      case ProgramKind::kLanes:
        return lanes();
      case ProgramKind::kReductions:
        return reduction();
      case ProgramKind::kScalar:
        return scalar();
      case ProgramKind::kMixed:
        return instruction(kAll[random_.below(5)]);
    }
  }

  void loop(ProgramKind kind) {
    const std::uint32_t inner = random_.below(4);
    line("C_LOOP_START gp12, {}", random_.below(4));
    for (std::uint32_t i = random_.below(3); i > 0; --i) instruction(kind);
    if (inner > 0) {
      line("C_LOOP_START gp13, {}", inner);
      for (std::uint32_t i = 1 + random_.below(3); i > 0; --i) instruction(kind);
      line("C_LOOP_END gp13");
    }
    if (random_.one_in(2)) instruction(kind);
    line("C_LOOP_END gp12");
  }

  void set_mask() {
    line("li gp14, {}", random_.bits() & 0xffff);
    line("C_SET_V_MASK_REG gp14");
  }

 private:
  std::string length() { return fmt::format("gp{}", 9 + random_.below(2)); }
  std::string result() { return fmt::format("gp{}", 14 + random_.below(2)); }

  void select() {
    for (;;) {
      const std::uint32_t d = random_.below(4), a = random_.below(4), b = random_.below(4), n = random_.below(2);
      const auto distance = [&](std::uint32_t s) {
        return static_cast<std::int64_t>(words_[d]) - static_cast<std::int64_t>(words_[s]);
      };
      const auto overlaps = [&](std::int64_t by) { return by != 0 && std::abs(by) < length_[n]; };
      if (overlaps(distance(a)) && overlaps(distance(b)) && (distance(a) > 0) != (distance(b) > 0)) continue;
      return line("V_SELECT_INT gp{}, gp{}, gp{}, {}, gp{}", 5 + d, 5 + a, 5 + b, row(), 9 + n);
    }
  }
  void map() {
    if (random_.one_in(4)) return line("S_MAP_V_FP {}, {}, {}", row(), word(), random_.below(8));
    if (random_.one_in(4)) return line("S_ST_FP {}, {}, {}", f(), word(), random_.below(20));
    line("S_MAP_V_FP {}, {}, {}", row(), word(), length());
  }
  void lanes() {
    switch (random_.below(5)) {
      case 0:
        return line("V_ADD_VV {}, {}, {}, {}", row(), row(), row(), masked());
      case 1:
        return line("V_SUB_VV {}, {}, {}, {}", row(), row(), row(), masked());
      case 2:
        return line("V_ADD_VF {}, {}, {}, {}", row(), row(), f(), masked());
      case 3:
        return line("V_SUB_VF {}, {}, {}, {}, {}", row(), row(), f(), masked(), random_.below(2));
      default:
        return line("V_EXP_V {}, {}, {}", row(), row(), masked());
    }
  }
  void reduction() {
    switch (random_.below(5)) {
      case 0:
        return line("V_RED_MAX {}, {}, {}", f(), row(), masked());
      case 1:
        return line("V_RED_SUM {}, {}, {}", f(), row(), masked());
      case 2:
        return line("V_TOPK_MASK {}, {}, {}, gp11, {}", row(), row(), row(), length());
      case 3:
        return line("S_LI_FP {}, -inf", f());
      default:
        return line("V_RED_MAX_IDX {}, {}, gp9, {}", result(), row(), f());
    }
  }
  void scalar() {
    static constexpr const char* kThree[] = {"S_ADD_FP", "S_SUB_FP", "S_MUL_FP", "S_MAX_FP"};
    static constexpr const char* kInt[] = {"S_ADD_INT", "S_SUB_INT", "S_MUL_INT"};
    switch (random_.below(10)) {
      case 0:
        return line("S_EXP_FP {}, {}", f(), f());
      case 1:
        return line("S_RECI_FP {}, {}", f(), f());
      case 2:
        return line("S_MV_FP {}, {}", f(), f());
      case 3:
        return line("S_LI_FP {}, 0x{:04x}", f(), random_.any());
      case 4:
        return line("S_LD_FP {}, {}, {}", f(), word(), random_.below(20));
      case 5:
        return line("S_ST_FP {}, {}, {}", f(), word(), random_.below(20));
      case 6:
        return line("S_LD_INT {}, {}, {}", result(), word(), random_.below(20));
      case 7:
        return line("S_ST_INT gp{}, {}, {}", random_.below(16), word(), random_.below(20));
      case 8:
        return line("{} {}, gp{}, gp{}", kInt[random_.below(3)], result(), random_.below(16), random_.below(16));
      default:
        return line("{} {}, {}, {}", kThree[random_.below(4)], f(), f(), f());
    }
  }

  std::uint32_t vlen_;
  std::uint32_t words_[4] = {}, length_[2] = {};
};

void fill(npu::MachineState& state, Vectors& random) {
  const auto lanes = static_cast<std::size_t>(state.config.vlen);
  for (std::size_t row = 0; row < 24; ++row) {
    const std::vector<Bf16> values = random.row(state.config.vlen);
    std::copy(values.begin(), values.end(), state.vram.data() + row * lanes);
    // Masks: zeros of both signs count as not set.
    if (row % 4 == 3)
      for (std::size_t i = 0; i < lanes; ++i)
        state.vram[row * lanes + i] = random.one_in(2) ? Bf16{0x3f80} : random.one_in(4) ? Bf16{0x8000} : Bf16{0};
  }
  for (std::uint32_t i = 0; i < EngineShape::kFpWords; ++i) state.fp_mem[i] = random.any();
  for (std::uint32_t i = 0; i < EngineShape::kIntWords; ++i)
    state.int_mem[i] = static_cast<std::uint32_t>(random.bits());
}

npu::SamplingShape sampling_shape(int form, int variant) {
  static constexpr npu::SamplingForm kForms[] = {npu::SamplingForm::kPublished, npu::SamplingForm::kChunked,
                                                 npu::SamplingForm::kOnePass};
  // batch, block, vocabulary, steps, chunk
  static constexpr std::int64_t kShapes[3][2][5] = {{{2, 4, 1500, 1, 0}, {1, 7, 2048, 3, 0}},
                                                    {{2, 4, 3000, 1, 512}, {1, 6, 5000, 2, 2048}},
                                                    {{2, 4, 1500, 2, 0}, {2, 3, 6000, 1, 512}}};
  const auto& s = kShapes[form][variant];
  npu::SamplingShape shape;
  shape.form = kForms[form];
  shape.batch = s[0];
  shape.block = s[1];
  shape.vocab = s[2];
  shape.steps = s[3];
  shape.chunk = s[4];
  return shape;
}

}  // namespace

std::string random_program(Vectors& random, int vlen, ProgramKind kind, int instructions) {
  Writer writer(random, vlen);
  for (int i = 0; i < instructions; ++i) {
    if (i % 24 == 0) {
      writer.addresses();
      writer.set_mask();
    }
    if (random.one_in(12))
      writer.loop(kind);
    else
      writer.instruction(kind);
  }
  return writer.take() + (random.one_in(2) ? "C_BREAK\nS_ADDI_INT gp1, gp1, 1\n" : "");
}

EngineResult check_programs(int vlen, ProgramKind kind, std::uint64_t instructions, std::uint64_t seed) {
  const npu::Device device = engine_device();
  const npu::MachineConfig config = engine_config(vlen);
  Vectors random(seed);
  EngineResult total;
  while (total.instructions < instructions) {
    const npu::Program program = checked(npu::assemble(random_program(random, vlen, kind, 1000), {.file = "random"}));
    npu::Machine machine = checked(npu::Machine::create(config)), memory = checked(npu::Machine::create(config));
    fill(machine.state(), random);
    total.add(run_engine(machine, memory, device, program));
    if (total.wrong > 0 || total.units_apart > 0) break;
  }
  return total;
}

EngineResult check_sampling(int form, int variant, const std::string& waves) {
  const npu::Device device = engine_device();
  const npu::SamplingKernel kernel = checked(npu::build_sampling(device, sampling_shape(form, variant)));
  const npu::SamplingInputs inputs = npu::random_sampling_inputs(kernel.shape, 7);
  std::vector<std::vector<std::uint8_t>> later;
  npu::sample_plainly(kernel, inputs, &later);
  npu::Machine machine = checked(npu::Machine::create(kernel.machine)),
               memory = checked(npu::Machine::create(kernel.machine));
  npu::load_sampling(kernel, inputs, later, machine.state());
  npu::load_sampling(kernel, inputs, later, memory.state());
  return run_engine(machine, memory, device, kernel.program, {.waves = waves, .may_trap = false, .coverage = nullptr});
}

}  // namespace dllm::rtl
