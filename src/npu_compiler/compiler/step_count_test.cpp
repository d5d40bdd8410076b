// Counted steps against compiled ones: what they take, in which parts they run, and why they do not fit.

#include "npu_compiler/compiler/step_count.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "npu_compiler/compiler/device_step.h"
#include "npu_compiler/compiler/feasible.h"
#include "npu_compiler/compiler/make_step.h"
#include "npu_core/device/profile.h"
#include "npu_core/machine/device_machine.h"

namespace dllm::npu {
namespace {

class Draws {
 public:
  explicit Draws(std::uint32_t seed) : random_(seed) {}
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[random_() % choices.size()];
  }
  std::int64_t up_to(std::int64_t most) {
    return 1 + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most));
  }
  bool chance(unsigned in) { return random_() % in == 0; }

  /// A shipped profile with other memories, and now and then another array and smoothed keys and values.
  Expected<Device> device() {
    const std::vector<std::string> names = device_names();
    std::vector<Override> changes;
    const auto set = [&](const char* key, std::int64_t value) { changes.push_back({key, std::to_string(value)}); };
    if (chance(2)) {
      const std::int64_t lanes = one_of<std::int64_t>({64, 128, 256, 512});
      set("array.blen", one_of<std::int64_t>({8, 16, 32, 64})), set("array.hlen", one_of<std::int64_t>({32, 64}));
      set("array.mlen", lanes), set("array.vlen", chance(3) ? 2 * lanes : lanes);
    }
    if (!chance(3)) set("sram.vector_rows", std::int64_t{256} << random_() % 8);
    if (!chance(3)) set("sram.matrix_tiles", up_to(40));
    if (chance(4)) set("sram.fp_words", std::int64_t{32} << random_() % 8);
    if (chance(4)) set("sram.int_words", std::int64_t{256} << random_() % 8);
    if (chance(4)) changes.push_back({"numerics.smooth_keys", "minmax"});
    if (chance(4)) changes.push_back({"numerics.smooth_values", "mean"});
    return load_device(names[random_() % names.size()], changes);
  }

  /// Up to five narrow layers, dense or of experts.
  ModelShape model() {
    if (chance(6)) return two_regions();
    ModelShape shape = *load_model_shape(one_of({"llada-8b", "dream-7b", "llada-moe", "llada2-mini"}));
    ModelDesc& d = shape.desc;
    d.layers = d.experts.leading_dense + up_to(5), d.vocab = 512 * up_to(3);
    d.head_dim = one_of<std::int64_t>({32, 64}), d.rope_dims = d.head_dim;
    d.kv_heads = one_of<std::int64_t>({2, 4, 8}), d.heads = d.kv_heads * one_of<std::int64_t>({1, 1, 2, 3});
    d.width = d.heads * d.head_dim, d.ffn_width = 64 * up_to(24);
    if (d.experts.count > 0) d.experts.count = 16, d.experts.used = 2, d.experts.width = 32 * up_to(8);
    if (d.experts.groups > 1) d.experts.groups = 4, d.experts.groups_used = 2;
    if (d.experts.shared_width > 0) d.experts.shared_width = d.experts.width;
    return shape;
  }

  /// Layers with a window, and after each few of them one without.
  ModelShape two_regions() {
    ModelShape shape = *load_model_shape("diffusion-gemma-tiny");
    ModelDesc& d = shape.desc;
    d.layers = up_to(6), d.width = 32 * up_to(8), d.ffn_width = 32 * up_to(6),
    d.sliding.window = static_cast<std::int32_t>(8 * up_to(8));
    d.sliding.layers.clear();
    for (std::int64_t layer = 0, all = 2 + up_to(3); layer < d.layers; ++layer)
      d.sliding.layers.push_back((layer + 1) % all != 0);
    return shape;
  }

  StepSize step() {
    StepSize size{.sequences = up_to(8), .rows = up_to(96)};
    size.keys = size.rows + (chance(3) ? 0 : up_to(300)), size.scored = up_to(size.rows);
    return size;
  }

  CompileOptions options() {
    CompileOptions options;
    options.fuse = !chance(5), options.overlap = !chance(4);
    if (chance(5)) options.head = HeadMode::kReduced;
    if (chance(2)) options.temperature = 0.5;
    return options;
  }

 private:
  std::mt19937 random_;
};

std::string said(const Expected<StepUse>& use) {
  return use ? fmt::format("{} rows, overlapped {}, {} bytes", use->vram_rows, use->overlapped, use->step_bytes)
             : use.error().message();
}

TEST(StepCount, EqualsTheCompiledStep) {
  Draws draws(1);
  int fits = 0, refused = 0;
  for (int i = 0; i < 300; ++i) {
    const auto device = draws.device();
    const ModelShape shape = draws.model();
    const StepSize size = draws.step();
    const CompileOptions options = draws.options();
    if (!device) continue;
    const auto machine = machine_config(*device);
    if (!machine) continue;
    const Graph any = shape.architecture->build(shape.desc, {1, 1});
    std::vector<bool> present;
    for (const WeightDecl& decl : any.weights) present.push_back(decl.required);
    const auto layout = make_layout(any, present, *machine, size.keys);
    if (!layout) continue;
    const auto spec = make_step(any, *layout, size);
    ASSERT_TRUE(spec) << spec.error().message();
    const Graph graph = shape.architecture->build(shape.desc, {spec->rows(), spec->scored()});
    KeptLowering kept(graph);
    const auto counted = count_step(graph, *layout, *spec, options, kept);
    Expected<StepUse> compiled = StepUse{};
    if (const auto step = compile_step(graph, *layout, *spec, options); step)
      compiled = StepUse{.vram_rows = step->vram_rows, .overlapped = step->overlapped, .step_bytes = step->step_bytes};
    else
      compiled = step.error();
    EXPECT_EQ(said(counted), said(compiled)) << i << " " << device->name << " " << shape.desc.architecture;
    ++(compiled ? fits : refused);
  }
  EXPECT_GT(fits, 80);
  EXPECT_GT(refused, 30);
}

std::string said(const std::vector<RowPart>& parts) {
  std::string text;
  for (const RowPart& part : parts) text += fmt::format("{}:{}+{} ", part.sequences, part.first, part.rows);
  return text;
}

/// Everything that decides about a point of a sweep, of the same models with few and with many layers.
TEST(Feasibility, IsWhatTheCompilerSays) {
  Draws draws(2);
  int whole = 0, cut = 0, refused = 0;
  for (int i = 0; i < 20; ++i) {
    const ModelShape shape = draws.model();
    Feasibility kept(shape);
    for (int k = 0; k < 12; ++k) {
      const auto device = draws.device();
      const StepSize size = draws.step();
      if (!device) continue;
      const auto need = kept.memory_need(*device, size.keys);
      const auto room = need ? check_caches(*need, size.sequences) : Expected<void>(need.error());
      const auto parts = room ? kept.step_parts(*device, size, {}) : Expected<std::vector<RowPart>>(room.error());
      const auto build = [&](StepShape rows) { return shape.architecture->build(shape.desc, rows); };
      const auto compiled = compile_graph(build, *device, size, {});
      const std::string expected = compiled ? said(compiled->step.row_parts) : compiled.error().message();
      EXPECT_EQ(parts ? said(*parts) : parts.error().message(), expected) << i << " " << k << " " << device->name;
      if (compiled) {
        EXPECT_EQ(need->weights, compiled->layout.weight_bytes);
        EXPECT_EQ(need->cache, kv_layout(build({1, 1}), compiled->layout, size.keys)->bytes);
        EXPECT_EQ(need->room, compiled->layout.step_base);
        ++(compiled->step.row_parts.size() == 1 ? whole : cut);
      } else {
        ++refused;
      }
    }
  }
  EXPECT_GT(whole, 20);
  EXPECT_GT(cut, 10);
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace dllm::npu
