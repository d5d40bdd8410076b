#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "npu_compiler/compiler/split_step.h"
#include "npu_compiler/compiler/testing/tiny_model.h"
#include "npu_compiler/compiler/weights_image.h"
#include "npu_compiler/testing/reference/executor.h"
#include "npu_core/machine/machine.h"

// Runs compiled programs on the functional machine and compares them with the reference executor.

namespace dllm::npu::test {

inline MxFormat format(const char* name) { return *mx_format_from_name(name); }

/// The smallest machine that has every feature: 2 heads in a group of MLEN lanes, 2 groups in a row.
inline MachineConfig small_machine() {
  MachineConfig m;
  m.blen = 4, m.mlen = 32, m.vlen = 64, m.hlen = 16;
  m.vram_elements = std::uint64_t{64} * 4096;
  m.mram_elements = std::uint64_t{32 * 32} * 32;
  m.fp_words = m.int_words = 1024;
  m.hbm_bytes = std::uint64_t{1} << 26;
  m.weight = format("mxint8:16:ocp");
  m.matrix_kv = m.vector_kv = format("mxint8:16:ocp");
  m.matrix_input = format("mxint8:16:ocp");
  return m;
}

/// One model on a machine, together with the reference.
class Bench {
 public:
  /// `change` may modify the random weights. `mapping`: null for the one by rule.
  Bench(const TinyShape& shape, const MachineConfig& machine, std::int64_t positions = 64, bool optional = true,
        const std::function<void(TinyWeights&)>& change = {}, const Mapping* mapping = nullptr)
      : Bench([shape](StepShape step) { return tiny_graph(shape, step); }, shape.vocab, machine, positions, optional,
              change, mapping) {}
  /// Of any graph.
  Bench(std::function<Graph(StepShape)> graph, std::int64_t vocab, const MachineConfig& machine,
        std::int64_t positions = 64, bool optional = true, const std::function<void(TinyWeights&)>& change = {},
        const Mapping* mapping = nullptr)
      : graph_(std::move(graph)), vocab_(vocab), weights_(graph_({1, 1}), 7, optional) {
    if (change) change(weights_);
    auto layout = make_layout(graph_({1, 1}), weights_.present(), machine, positions, mapping);
    if (!layout) throw std::runtime_error(layout.error().message());
    layout_ = std::move(*layout);
    machine_.emplace(std::move(*Machine::create(machine)));
    write_weights(graph_({1, 1}), layout_, weights_.views(), machine_->state().hbm.data());
    executor_.emplace(layout_, weights_.views());
  }

  const ModelLayout& layout() const { return layout_; }

  /// Makes an empty cache and returns its index, which is the sequence's.
  void add_cache(std::int64_t capacity) {
    const KvLayout kv = *kv_layout(graph_({1, 1}), layout_, capacity);
    slots_.push_back({next_, capacity});
    next_ += kv.bytes;
    caches_.emplace_back(std::make_unique<reference::Cache>());
  }

  SequenceSpec sequence(std::size_t cache, std::vector<Position> positions, std::vector<PositionRange> visible,
                        std::vector<std::int32_t> scored, std::int32_t causal_block = 0) const {
    return {std::move(positions), std::move(visible),  causal_block,
            std::move(scored),    slots_[cache].first, slots_[cache].second};
  }

  /// Runs the step on both and compares.
  void run(const StepSpec& spec, const std::vector<std::size_t>& cache_of, bool keep_values,
           HeadMode head = HeadMode::kLogits, IssueObserver* observer = nullptr) {
    const Graph graph = graph_({spec.rows(), spec.scored()});
    auto compiled = compile_step(graph, layout_, spec, {.head = head, .keep_values = keep_values});
    ASSERT_TRUE(compiled.has_value()) << compiled.error().message();
    const std::vector<float> hidden = fill_hidden(graph, *compiled);
    const std::vector<TokenId> tokens = execute(compiled->program, compiled->constants, spec, observer);
    std::vector<reference::Cache*> caches;
    for (const std::size_t index : cache_of) caches.push_back(caches_[index].get());
    const reference::StepResult expected = executor_->run(graph, spec, tokens, caches, hidden);
    if (keep_values) compare_values(graph, *compiled, expected);
    head == HeadMode::kLogits ? compare_logits(*compiled, expected, 0, expected.logits.size())
                              : compare_predictions(*compiled, expected);
  }

  /// The same for a step that may be cut into parts, or is in the given ones; returns their number.
  std::size_t run_parts(const StepSpec& spec, const std::vector<std::size_t>& cache_of,
                        const std::vector<RowPart>& parts = {}) {
    const auto compiled = compile_parts(graph_, layout_, spec, parts);
    EXPECT_TRUE(compiled.has_value()) << compiled.error().message();
    if (!compiled) return 0;
    std::vector<float> hidden;
    for (const StepPart& part : compiled->parts)
      for (const float x : fill_hidden(part.graph, part.step)) hidden.push_back(x);
    const std::vector<TokenId> tokens = execute(compiled->program, compiled->constants, spec, nullptr);
    std::vector<reference::Cache*> caches;
    for (const std::size_t index : cache_of) caches.push_back(caches_[index].get());
    const reference::StepResult expected =
        executor_->run(graph_({spec.rows(), spec.scored()}), spec, tokens, caches, hidden);
    std::size_t first = 0;
    for (const StepPart& part : compiled->parts) {
      if (!part.scores()) continue;
      const auto count = static_cast<std::size_t>(part.spec.scored());
      compare_logits(part.step, expected, first, count);
      first += count;
    }
    EXPECT_EQ(first, expected.logits.size());
    return compiled->row_parts.size();
  }

  /// Runs a step whose reduced head draws, after `inputs` filled StepProgram::draws; `check` gets the logits.
  template <class Inputs, class Check>
  void run_draws(const StepSpec& spec, std::size_t cache, double temperature, Inputs inputs, Check check) {
    const Graph graph = graph_({spec.rows(), spec.scored()});
    const auto compiled = compile_step(graph, layout_, spec, {.head = HeadMode::kReduced, .temperature = temperature});
    ASSERT_TRUE(compiled.has_value()) << compiled.error().message();
    inputs(*compiled, machine_->state());
    const std::vector<TokenId> tokens = execute(compiled->program, compiled->constants, spec, nullptr);
    check(*compiled, machine_->state(), executor_->run(graph, spec, tokens, {caches_[cache].get()}).logits);
  }

 private:
  /// Writes numbers to the place of the rows from outside, if there is one; returns them.
  std::vector<float> fill_hidden(const Graph& graph, const StepProgram& compiled) {
    std::vector<float> hidden;
    for (const HiddenPlace& place : compiled.hidden_in) {
      const auto vlen = static_cast<std::size_t>(layout_.machine.vlen);
      const auto width = static_cast<std::size_t>(graph.value(place.value).width);
      const std::int64_t lanes = layout_.slabs(layout_.values[static_cast<std::size_t>(place.value)]) * place.stride;
      std::memset(machine_->state().hbm.data() + place.address, 0, 2 * vlen * static_cast<std::size_t>(lanes));
      for (std::size_t i = 0; i < static_cast<std::size_t>(graph.value(place.value).rows) * width; ++i) {
        hidden.push_back(std::sin(static_cast<float>(i + hidden_seed_)));
        const Bf16 bits = f32_to_bf16(hidden.back());
        const std::size_t lane = i % width, row = i / width;
        const std::size_t at = (lane / vlen * static_cast<std::size_t>(place.stride) + row) * vlen + lane % vlen;
        std::memcpy(machine_->state().hbm.data() + place.address + 2 * at, &bits, 2);
      }
      ++hidden_seed_;
    }
    return hidden;
  }

  /// Runs a program from reset; returns the tokens that it was given.
  std::vector<TokenId> execute(const Program& program, const std::vector<HbmBlob>& constants, const StepSpec& spec,
                               IssueObserver* observer) {
    MachineState& state = machine_->state();
    std::vector<TokenId> tokens;
    for (std::int64_t r = 0; r < spec.rows(); ++r) tokens.push_back(static_cast<TokenId>((r * 31 + 5) % vocab_));
    for (std::size_t r = 0; r < tokens.size(); ++r) state.int_mem[r] = static_cast<std::uint32_t>(tokens[r]);
    for (const HbmBlob& blob : constants)
      std::memcpy(state.hbm.data() + blob.address, blob.bytes.data(), blob.bytes.size());
    state.reset_registers();
    RunOptions options;
    options.observer = observer;
    const auto ran = machine_->run(program, options);
    if (!ran) ADD_FAILURE() << ran.error().message();
    return tokens;
  }

  void compare_values(const Graph& graph, const StepProgram& compiled, const reference::StepResult& expected) {
    for (std::size_t id = 0; id < graph.values.size(); ++id) {
      const ValuePlace& place = compiled.values[id];
      for (std::size_t r = 0; r < expected.values[id].size(); ++r)
        for (std::size_t lane = 0; lane < expected.values[id][r].size(); ++lane) {
          const auto vlen = static_cast<std::size_t>(layout_.machine.vlen);
          const std::size_t row =
              static_cast<std::size_t>(place.row) + lane / vlen * static_cast<std::size_t>(place.stride) + r;
          const Bf16 got = machine_->state().vram[row * vlen + lane % vlen];
          ASSERT_EQ(bf16_to_f32(got), bf16_to_f32(expected.values[id][r][lane]))
              << graph.values[id].name << " row " << r << " lane " << lane;
          const auto signless = static_cast<Bf16>(got & 0x7fff);
          if (signless != 0) {
            ASSERT_EQ(got, expected.values[id][r][lane]) << graph.values[id].name << " row " << r << " lane " << lane;
          }
        }
    }
  }

  void compare_predictions(const StepProgram& compiled, const reference::StepResult& expected) {
    for (std::size_t r = 0; r < expected.logits.size(); ++r) {
      const auto one = reference::reduce_logits(expected.logits[r], static_cast<std::size_t>(layout_.machine.vlen));
      EXPECT_EQ(machine_->state().int_mem[compiled.predicted + r], one.token) << "row " << r;
      EXPECT_EQ(machine_->state().fp_mem[compiled.confidence + r], one.confidence) << "row " << r;
      EXPECT_GT(bf16_to_f32(one.confidence), 0.0f);
    }
  }

  /// A part's logits: the step's, from row `first` on.
  void compare_logits(const StepProgram& compiled, const reference::StepResult& expected, std::size_t first,
                      std::size_t count) {
    const auto vlen = static_cast<std::size_t>(layout_.machine.vlen);
    const auto rows = static_cast<std::size_t>(compiled.logit_rows);
    for (std::size_t r = 0; r < count; ++r)
      for (std::size_t t = 0; t < expected.logits[first + r].size(); ++t) {
        const std::size_t at = (t / vlen * rows + r) * vlen + t % vlen;
        Bf16 got = 0;
        std::memcpy(&got, machine_->state().hbm.data() + compiled.logits + 2 * at, 2);
        ASSERT_EQ(got, expected.logits[first + r][t]) << "logit of token " << t << " in row " << first + r;
      }
  }

  std::function<Graph(StepShape)> graph_;
  std::int64_t vocab_;
  TinyWeights weights_;
  ModelLayout layout_;
  std::optional<Machine> machine_;
  std::optional<reference::Executor> executor_;
  std::vector<std::pair<std::uint64_t, std::int64_t>> slots_;
  std::uint64_t next_ = std::uint64_t{1} << 25;
  std::size_t hidden_seed_ = 1;
  std::vector<std::unique_ptr<reference::Cache>> caches_;
};

inline std::vector<Position> range(Position first, Position count) {
  std::vector<Position> positions;
  for (Position p = first; p < first + count; ++p) positions.push_back(p);
  return positions;
}

/// A whole canvas, then a block of it that sees everything, then scattered rows.
inline void three_steps(Bench& bench, bool keep_values) {
  bench.add_cache(40);
  bench.add_cache(33);
  bench.run(
      {{bench.sequence(0, range(0, 37), {{0, 37}}, {1, 2, 3, 30}), bench.sequence(1, range(0, 9), {{0, 9}}, {8})}},
      {0, 1}, keep_values);
  bench.run({{bench.sequence(0, range(20, 10), {{0, 37}}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})}}, {0}, keep_values);
  bench.run({{bench.sequence(1, {2, 3, 8}, {{0, 5}, {7, 9}}, {}), bench.sequence(0, {5, 36}, {{0, 37}}, {1})}}, {1, 0},
            keep_values);
}

}  // namespace dllm::npu::test
