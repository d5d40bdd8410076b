// What --draft-model names: a drafter beside a backend, or a copy of the model for the CPU backend.
#include "engine/backend/cpu_drafter.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "engine/backend/cpu.h"
#include "engine/draft_backend.h"
#include "engine/drafter_backend.h"
#include "engine/load.h"
#include "model/drafter_source.h"

namespace dllm {
namespace {

/// Bytes of the tensors that a pass reads whole: all but tables of embeddings.
double read_bytes(const Model& model) {
  std::size_t sum = 0;
  for (const SourceTensor& tensor : model.tensors())
    if (tensor.name != "token_embd.weight" || model.desc().tied_embeddings) sum += byte_size(tensor);
  return static_cast<double>(sum);
}

}  // namespace

Expected<std::shared_ptr<const Model>> open_drafter(const Model& target, const LoadOptions& options, const Log& log) {
  if (options.draft_model.empty()) return std::shared_ptr<const Model>();
  DLLM_TRY(ModelSource source, open_source(options.draft_model));
  if (!is_drafter(source)) return std::shared_ptr<const Model>();
  if (!options.lora_draft.empty())
    return Error{ErrorCode::kUsage, "a drafter takes no adapter", "--lora-draft", "leave it out"};
  DLLM_CHECK_OK(complete_drafter(target, source));
  DLLM_TRY(std::shared_ptr<const Model> drafter, Model::load(std::move(source), log));
  DLLM_CHECK_OK(check_drafter(target, *drafter));
  return drafter;
}

std::vector<std::int32_t> layers_read_by(const std::shared_ptr<const Model>& drafter) {
  return drafter ? drafter->desc().drafter.target_layers : std::vector<std::int32_t>();
}

void put_beside(const std::shared_ptr<const Model>& drafter, std::unique_ptr<Backend> context,
                std::unique_ptr<Backend> block, double cost, RunningBackend& running) {
  const auto files = drafter->all_files();
  running.files.insert(running.files.end(), files.begin(), files.end());
  running.backend =
      std::make_unique<DrafterBackend>(DrafterBackend::Parts{std::move(running.backend), std::move(context),
                                                             std::move(block), DraftChoice(*drafter), drafter},
                                       drafter->desc().drafter, *drafter->desc().mask, cost);
}

Expected<std::shared_ptr<const Model>> open_copy(const Model& model, const LoadOptions& options, const Log& log) {
  DLLM_TRY(auto source, open_or_embedded(options.draft_model));
  DLLM_CHECK_OK(rescale_rope(rope_request(options), source));
  DLLM_TRY(const auto adapters, adapter_requests(options));
  DLLM_TRY(std::shared_ptr<const Model> drafts, Model::load(std::move(source), log, adapters));
  DLLM_CHECK_OK(check_draft_model(model.desc(), drafts->desc()));
  return drafts;
}

Expected<void> add_copy(const std::shared_ptr<const Model>& drafts, CpuOptions cpu, RunningBackend& running) {
  const auto& own = static_cast<const CpuBackend&>(*running.backend);
  cpu.isa = own.isa();
  cpu.kv = kv_type_of(own.kv_type());
  cpu.profile = nullptr;  // it counts the operators of one graph
  DLLM_TRY(std::unique_ptr<CpuBackend> backend,
           CpuBackend::create(
               drafts->desc(), [drafts](StepShape shape) { return drafts->build(shape); }, drafts->weights(), cpu));
  const auto files = drafts->all_files();
  running.files.insert(running.files.end(), files.begin(), files.end());
  if (backend->weight_cache()) running.files.push_back(backend->weight_cache());
  running.drafts_arithmetic = backend->arithmetic();
  running.backend = std::make_unique<DraftBackend>(std::move(running.backend), std::move(backend), drafts);
  return {};
}

Expected<void> add_drafter(const Model& target, const std::shared_ptr<const Model>& drafter, CpuOptions cpu,
                           RunningBackend& running) {
  // A device's model has a cache of its own type.
  if (const auto* const own = dynamic_cast<const CpuBackend*>(running.backend.get())) {
    cpu.isa = own->isa();
    cpu.kv = kv_type_of(own->kv_type());
  }
  cpu.weight_cache = {};
  cpu.profile = nullptr;  // it counts the operators of one graph
  cpu.progress = {};      // the model's has been shown
  const auto part = [&](auto build) {
    return CpuBackend::create(
        drafter->desc(), [drafter, build](StepShape shape) { return build(*drafter, shape); }, drafter->weights(), cpu);
  };
  DLLM_TRY(std::unique_ptr<CpuBackend> block,
           part([](const Model& model, StepShape shape) { return model.build(shape); }));
  DLLM_TRY(std::unique_ptr<CpuBackend> context,
           part([](const Model& model, StepShape shape) { return model.build_context(shape); }));
  running.drafts_arithmetic = block->arithmetic();
  const double cost = read_bytes(*drafter) / std::max(1.0, read_bytes(target));
  put_beside(drafter, std::move(context), std::move(block), cost, running);
  return {};
}

}  // namespace dllm
