#include "answer/answers.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/try.h"
#include "engine/generate.h"
#include "npu_backend/accuracy/accuracy_backend.h"

namespace dllm::rtl {

Expected<std::unique_ptr<CoreAnswers>> CoreAnswers::create(std::shared_ptr<const Model> model, const CoreShape& shape,
                                                           MemoryTiming timing) {
  auto result = std::unique_ptr<CoreAnswers>(new CoreAnswers);
  result->model_ = std::move(model);
  const Model& weights = *result->model_;
  DLLM_TRY(CoreDevice device, core_device(shape));
  result->device_ = std::make_unique<CoreDevice>(std::move(device));
  DLLM_TRY(result->core_, shape.make(shape, result->device_->device, result->device_->config, timing));
  const auto graph = [&weights](StepShape rows) { return weights.build(rows); };
  npu::NpuOptions options;
  options.execute = [core = result->core_.get()](npu::Machine& machine, const npu::Program& program) {
    return core->run(machine, program);
  };
  DLLM_TRY(result->on_core_,
           npu::NpuBackend::create(weights.desc(), graph, weights.weights(), result->device_->config, options));
  DLLM_TRY(npu::accuracy::NumericsProfile profile,
           npu::accuracy::device_numerics(result->device_->device, shape.device, {}));
  DLLM_TRY(result->on_device_,
           npu::accuracy::AccuracyBackend::create(weights.desc(), graph, weights.weights(), std::move(profile), 1));
  return result;
}

Expected<CoreAnswers::Answer> CoreAnswers::answer(const std::vector<TokenId>& prompt, const ResolvedOptions& options) {
  DLLM_TRY(Generation core, generate({*on_core_, model_->tokenizer()}, prompt, options));
  DLLM_TRY(Generation device, generate({*on_device_, model_->tokenizer()}, prompt, options));
  return Answer{std::move(core), std::move(device)};
}

double transfers_apart(const CoreTotals& totals) {
  const PartCycles& transfers = totals.result.parts[static_cast<std::size_t>(Part::kTransfer)];
  return 100 * static_cast<double>(transfers.core - transfers.simulator) / static_cast<double>(totals.result.cycles);
}

std::string cycle_table(const CoreTotals& totals) {
  constexpr std::array<const char*, kParts> kNames = {"vector, scalar, control", "products", "write-outs", "transfers",
                                                      "loops"};
  std::string text = fmt::format("{:<24} {:>12} {:>12} {:>12}\n", "", "executed", "core", "simulator");
  PartCycles sum;
  for (std::size_t i = 0; i < kParts; ++i) {
    const PartCycles& part = totals.result.parts[i];
    text += fmt::format("{:<24} {:>12} {:>12} {:>12}\n", kNames[i], part.instructions, part.core, part.simulator);
    sum.instructions += part.instructions;
    sum.core += part.core;
    sum.simulator += part.simulator;
  }
  text += fmt::format("{:<24} {:>12} {:>12} {:>12}\n", "sum", sum.instructions, sum.core, sum.simulator);
  text += fmt::format("transfers apart from the simulator's: {:+.2f} % of all cycles\n", transfers_apart(totals));
  text +=
      fmt::format("of the core's: {} cycles until the first instruction, {} of loops alone and ports, {} of fills\n",
                  totals.result.cycles - sum.core, totals.result.loops_alone, totals.result.fills);
  return text;
}

}  // namespace dllm::rtl
