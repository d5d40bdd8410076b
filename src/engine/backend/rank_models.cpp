// A model on several ranks with what runs beside it: adapters, a copy for drafts, a drafter.
#include "engine/backend/rank_models.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "base/try.h"
#include "engine/backend/cpu_drafter.h"
#include "engine/backend/rank_adapters.h"
#include "engine/backend/ranks_setup.h"
#include "engine/draft_backend.h"
#include "model/drafter_source.h"
#include "model/source.h"
#include "ranks/agree.h"

namespace dllm {
namespace {

enum class DraftKind : std::uint8_t { kNone, kCopy, kDrafter };

Expected<DraftKind> share_draft_kind(const RankModels& own, Communicator& ranks) {
  DraftKind kind = DraftKind::kNone;
  if (own.drafts) kind = own.drafts->is_drafter() ? DraftKind::kDrafter : DraftKind::kCopy;
  DLLM_TRY(const std::vector<std::byte> told, ranks.broadcast({static_cast<std::byte>(kind)}));
  if (told.size() == 1 && static_cast<std::uint8_t>(told[0]) <= static_cast<std::uint8_t>(DraftKind::kDrafter))
    return static_cast<DraftKind>(told[0]);
  return Error{ErrorCode::kIo, "rank 0 sent something else than a kind of drafts", "ranks",
               "start all ranks with the same version"};
}

/// How a worker opens a file of rank 0's, with its adapters.
SentModel with_adapters_of(const std::vector<Adapter>& adapters) {
  SentModel sent;
  sent.open = [adapters](const std::string& path) -> Expected<std::shared_ptr<const Model>> {
    DLLM_TRY(ModelSource source, open_source(path));
    return Model::load(std::move(source), Log(), {}, adapters);
  };
  return sent;
}

/// The drafter reads tensors of the target's file too.
SentModel as_drafter(const Model* drafter, const std::shared_ptr<const Model>& target) {
  SentModel sent;
  sent.part = [drafter](const RankSplit&, PartSums* known) { return whole_file(*drafter, known); };
  sent.open = [target](const std::string& path) -> Expected<std::shared_ptr<const Model>> {
    DLLM_TRY(ModelSource source, open_source(path));
    DLLM_CHECK_OK(complete_drafter(*target, source));
    DLLM_TRY(std::shared_ptr<const Model> drafter_here, Model::load(std::move(source)));
    DLLM_CHECK_OK(check_drafter(*target, *drafter_here));
    return drafter_here;
  };
  return sent;
}

}  // namespace

Expected<std::shared_ptr<const Model>> open_drafts(const Model& model, const LoadOptions& options, const Log& log) {
  if (options.draft_model.empty()) return std::shared_ptr<const Model>();
  DLLM_TRY(std::shared_ptr<const Model> drafter, open_drafter(model, options, log));
  if (drafter) return drafter;
  return open_copy(model, options, log);
}

std::string beside_fingerprint(const RankModels& models) {
  std::string text = adapters_fingerprint(*models.model);
  if (models.drafts) text += "/" + model_fingerprint(*models.drafts) + adapters_fingerprint(*models.drafts);
  return text;
}

Expected<RankModels> share_models(RankModels own, Communicator& ranks, const Expected<SplitKind>& split,
                                  const PartFolder& folder, const SendWatch& watch) {
  DLLM_CHECK_OK(agree(ranks, split ? Expected<void>() : Expected<void>(split.error())));
  DLLM_TRY(const std::vector<Adapter> adapters, share_adapters(own.model.get(), !own.complete, ranks));
  DLLM_TRY(const DraftKind kind, share_draft_kind(own, ranks));
  SentModel sent = with_adapters_of(adapters);
  Expected<void> opened;
  if (own.model && !adapters.empty()) {
    auto again = sent.open(own.path);
    if (!again)
      opened = again.error();
    else if (model_fingerprint(**again) != model_fingerprint(*own.model))
      opened = Error{ErrorCode::kMismatch, "the model was replaced since this worker started", own.path,
                     "start the worker again"};
    else
      own.model = *std::move(again);
  }
  DLLM_CHECK_OK(agree(ranks, opened));
  const Model* const drafter = kind == DraftKind::kDrafter ? own.drafts.get() : nullptr;
  sent.part = [model = own.model.get(), drafter](const RankSplit& part, PartSums* known) {
    return part_of_file(*model, part, known, drafter);
  };
  if (!own.model) {
    DLLM_TRY(own.model, share_weights(nullptr, ranks, split, folder, watch, sent));
  } else {
    DLLM_TRY(const auto same, share_weights(own.model.get(), ranks, split, folder, watch, sent));
  }
  if (kind == DraftKind::kNone) return own;
  // Sums that were kept are of the model's file.
  const SendWatch of_drafts{watch.tell, watch.go_on, nullptr};
  SentModel drafts = kind == DraftKind::kDrafter ? as_drafter(own.drafts.get(), own.model) : with_adapters_of(adapters);
  DLLM_TRY(auto got, share_weights(own.drafts.get(), ranks, split, folder, of_drafts, std::move(drafts)));
  if (!own.drafts) own.drafts = std::move(got);
  return own;
}

Expected<RunningBackend> make_parts(const RankModels& models, CpuOptions options, Communicator& ranks,
                                    const Expected<SplitKind>& split) {
  const bool drafter = models.drafts && models.drafts->is_drafter();
  DLLM_TRY(std::unique_ptr<CpuBackend> own,
           make_part(*models.model, options, ranks, split, layers_read_by(models.drafts)));
  RunningBackend running;
  running.isa = own->isa();
  running.arithmetic = own->arithmetic();
  running.threads = own->threads();
  running.backend = std::move(own);
  options.progress = {};  // the model's has been shown
  Expected<void> added;
  // Its two graphs share a cache, and one of them has no attention, so that other splits would keep K and V at
  // different places. By rows all ranks have all of them. A drafter is small, and each rank has its whole file.
  if (drafter) options.split = SplitKind::kRows;
  if (drafter)
    added = add_drafter(*models.model, models.drafts, std::move(options), running);
  else if (models.drafts)
    added = add_copy(models.drafts, std::move(options), running);
  DLLM_CHECK_OK(agree(ranks, added));
  // It may have weights of other types than the model, for which this processor computes otherwise.
  if (models.drafts) DLLM_CHECK_OK(check_same_arithmetic(running.drafts_arithmetic, ranks));
  return running;
}

}  // namespace dllm
