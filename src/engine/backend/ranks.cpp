// The backend `ranks`: this processor and those of workers, each with a part of the model.
#include "engine/backend/ranks.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/input_file.h"
#include "base/parse_text.h"
#include "base/try.h"
#include "dllm/version.h"
#include "engine/backend/cpu.h"
#include "engine/backend/rank_models.h"
#include "engine/backend/rank_parts.h"
#include "engine/backend/ranks_setup.h"
#include "engine/backends.h"
#include "engine/joined_passes.h"
#include "engine/load_options.h"
#include "engine/load_rows.h"
#include "ranks/agree.h"
#include "ranks/mpi.h"
#include "ranks/ranked_backend.h"
#include "ranks/regrouping_backend.h"

namespace dllm {

Expected<RanksKey> read_ranks_key(const std::string& path) {
  if (path.empty()) return RanksKey{};
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & (S_IRWXO | S_IWGRP)) != 0)
    return Error{ErrorCode::kUsage, "others can read or change the key", path, "chmod 600 " + path};
  DLLM_TRY(const std::string text, read_input(path, 1U << 16U));
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos)
    return Error{ErrorCode::kUsage, "the file holds no key", path, "a line of secret text"};
  const std::size_t end = std::min(text.find_first_of("\r\n", first), text.size());
  return RanksKey{text.substr(first, text.find_last_not_of(" \t", end - 1) + 1 - first)};
}

namespace {

/// A guess: multiplications a second of one thread with int8 dot products. Nothing was measured for it; a wrong one
/// shifts the work of all splits alike, but for layers.
constexpr double kThreadMultiplications = 3e10;

const LoadReader& ranks_reader() {
  static const LoadReader reader{
      "ranks",
      {"threads", "isa", "cache_type", "activations", "arithmetic", "attention_arithmetic", "lora", "lora_draft",
       "draft_model", "workers", "workers_key", "split", "least_ranks"},
      "several ranks do not read it",
      "leave it out"};
  return reader;
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

/// Rank 0's choice: as the options say, or by what it measures. `again`: some ranks are lost, and what is left must
/// fit.
Expected<SplitKind> choose(const RankModels& models, const std::string& name, const RankFacts& facts,
                           const CpuOptions& cpu, bool again, const Log& log) {
  for (const SplitKind kind : {SplitKind::kOutputs, SplitKind::kRows, SplitKind::kLayers}) {
    if (name != split_name(kind)) continue;
    if (again) DLLM_CHECK_OK(check_fits(*models.model, facts, kind, models.drafts.get()));
    return kind;
  }
  DLLM_TRY(const SplitChoice choice,
           choose_split(*models.model, facts, usual_rows(models.model->desc(), models.drafts.get()),
                        cpu.threads * kThreadMultiplications, cpu, models.drafts.get()));
  log.warning("--split auto chose {}", choice.reason);  // what a machine chooses by itself, it prints
  return choice.kind;
}

/// The other ranks that the options name, read and checked once.
struct NamedRanks {
  std::vector<std::string> workers{};
  bool mpi = false;  ///< they stand for all that MPI has started
  RanksKey key{};
  std::int32_t least = 1;          ///< this one included
  std::vector<std::byte> setup{};  ///< RankSetup::encoded()

  /// Errors: kUsage, those of read_ranks_key().
  static Expected<NamedRanks> read(const RankModels& models, const LoadOptions& options);

 private:
  Expected<void> check_mpi(const LoadOptions& options) const;
};

Expected<std::int32_t> least_ranks(const std::string& text) {
  if (text.empty()) return 1;
  const auto number = parse_number<std::int32_t>(text);
  if (number && *number >= 1) return *number;
  return Error{ErrorCode::kUsage, fmt::format("'{}' is no number of ranks", text), "--least-ranks", "1 or more"};
}

Expected<void> NamedRanks::check_mpi(const LoadOptions& options) const {
  if (workers.size() > 1)
    return Error{ErrorCode::kUsage, "mpi stands for all other ranks, and is listed with more", "--workers",
                 "give mpi alone, or addresses"};
  if (!load_rows::own_text(options, "workers_key").empty())
    return Error{ErrorCode::kUsage, "MPI has no key", "--workers-key", "leave it out with --workers mpi"};
  if (!load_rows::own_text(options, "least_ranks").empty())
    return Error{ErrorCode::kUsage, "MPI ends all ranks when it loses one", "--least-ranks",
                 "leave it out with --workers mpi"};
  return {};
}

Expected<NamedRanks> NamedRanks::read(const RankModels& models, const LoadOptions& options) {
  NamedRanks named;
  named.workers = split_commas(load_rows::own_text(options, "workers"));
  if (named.workers.empty())
    return Error{ErrorCode::kUsage, "--backend ranks needs other ranks", "--workers",
                 "start 'dllm worker --listen HOST:PORT' on each, and list them"};
  DLLM_TRY(named.least, least_ranks(load_rows::own_text(options, "least_ranks")));
  named.mpi = std::ranges::count(named.workers, "mpi") > 0;
  const auto asked = static_cast<std::int32_t>(named.workers.size()) + 1;
  if (named.mpi) {
    DLLM_CHECK_OK(named.check_mpi(options));
  } else if (named.least > asked) {
    return Error{ErrorCode::kUsage, fmt::format("there are {} ranks, this one included", asked), "--least-ranks",
                 "give fewer"};
  } else if (!options.rope_scaling.empty()) {
    return Error{ErrorCode::kUsage, "workers read the model without it", "--rope-scaling",
                 "leave it out, or use --workers mpi, where all ranks get the same options"};
  }
  DLLM_TRY(named.key, read_ranks_key(load_rows::own_text(options, "workers_key")));
  named.setup =
      RankSetup{DLLM_VERSION,       model_fingerprint(*models.model), options.cache_type,        options.activations,
                options.arithmetic, options.attention_arithmetic,     beside_fingerprint(models)}
          .encoded();
  return named;
}

/// The processes that MPI has started, each with its `setup`. Errors: those of mpi_ranks().
Expected<std::shared_ptr<Communicator>> reach_mpi(const std::vector<std::byte>& setup) {
  DLLM_TRY(std::shared_ptr<Communicator> ranks, mpi_ranks());
  DLLM_TRY(const std::vector<std::byte> first, ranks->broadcast(setup));
  Expected<void> same;
  if (first != setup)
    same = Error{ErrorCode::kMismatch, "was started with another model or other options than rank 0", "mpi",
                 "give all ranks the same command"};
  DLLM_CHECK_OK(agree(*ranks, same));
  return ranks;
}

/// A process that MPI started beside the first: it has no answer of its own to give, and ends with the first.
[[noreturn]] void follow_to_the_end(const RankModels& models, CpuOptions cpu, std::shared_ptr<Communicator> ranks,
                                    const Log& log) {
  auto followed = [&]() -> Expected<void> {
    DLLM_TRY(const RankModels same, share_models(models, *ranks, SplitKind::kOutputs, PartFolder("", 0)));
    DLLM_TRY(const RunningBackend own, make_parts(same, std::move(cpu), *ranks, SplitKind::kOutputs));
    return follow_ranks(*own.backend, *ranks);
  }();
  if (!followed) log.warning("rank {}: {}", ranks->rank(), followed.error().message());
  ranks.reset();
  std::_Exit(followed ? 0 : 1);
}

/// Ends the other ranks if this one stops for a reason of its own, by an exception: they would wait for it.
class EndOthers {
 public:
  explicit EndOthers(Communicator& ranks) : ranks_(&ranks) {}
  ~EndOthers() {
    if (ranks_ != nullptr) ranks_->abort("rank 0 ran out of memory");
  }
  EndOthers(const EndOthers&) = delete;
  EndOthers& operator=(const EndOthers&) = delete;
  void release() { ranks_ = nullptr; }

 private:
  Communicator* ranks_;
};

bool one_machine(const RankFacts& facts) {
  return facts.machine.front() != 0 &&
         std::ranges::count(facts.machine, facts.machine.front()) == static_cast<std::ptrdiff_t>(facts.machine.size());
}

/// Makes rank 0's groups: the first, and others when ranks were lost. The model must outlive it.
class GroupMaker {
 public:
  GroupMaker(RankModels models, LoadOptions options, NamedRanks named, Log log)
      : models_(std::move(models)), options_(std::move(options)), named_(std::move(named)), log_(std::move(log)) {}

  /// Errors: those of connect_ranks(), mpi_ranks(), share_weights(), make_part().
  Expected<RegroupingBackend::Group> make(Absent absent, const std::function<bool()>& go_on) {
    DLLM_TRY(std::shared_ptr<Communicator> ranks, reach(absent, go_on));
    DLLM_TRY(const RankFacts facts, measure_ranks(*ranks));
    CpuOptions cpu = cpu_options(options_);
    if (ranks->rank() != 0) follow_to_the_end(models_, std::move(cpu), std::move(ranks), log_);
    if (!again_) cpu.progress = options_.progress;
    EndOthers guard(*ranks);
    const auto split =
        choose(models_, load_rows::own_text(options_, "split"), facts, cpu, std::exchange(again_, true), log_);
    auto made = [&]() -> Expected<RunningBackend> {
      const SendWatch watch{[this](const std::string& text) { log_.warning("{}", text); }, go_on, &sums_};
      DLLM_TRY(const RankModels same, share_models(models_, *ranks, split, PartFolder("", 0), watch));
      return make_parts(models_, std::move(cpu), *ranks, split);
    }();
    guard.release();  // an error is known to all
    if (!made) return std::move(made).error();
    RunningBackend own = *std::move(made);
    RegroupingBackend::Group group;
    group.ranks = ranks->size();
    group.facts = {facts.latency_s, facts.seconds_per_byte, *split, one_machine(facts)};
    group.isa = own.isa;
    group.arithmetic = fmt::format("{}, {} ranks by {}", own.arithmetic, ranks->size(), split_name(*split));
    group.threads = own.threads;
    group.backend = std::make_unique<RankedBackend>(std::move(own.backend), ranks, log_);
    return group;
  }

  /// Whether one of the workers listens that the last group does without; false of `go_on` ends it.
  bool any_returned(const std::function<bool()>& go_on) {
    std::vector<std::string> missing;
    {
      const std::lock_guard lock(mutex_);
      missing = missing_;
    }
    return std::ranges::any_of(missing,
                               [&](const std::string& worker) { return go_on() && listens(worker, named_.key); });
  }

 private:
  /// The ranks that the options name, or those of them that are there.
  Expected<std::shared_ptr<Communicator>> reach(Absent absent, const std::function<bool()>& go_on) {
    if (named_.mpi) return reach_mpi(named_.setup);
    std::vector<std::string> missing;
    std::string first;
    const auto without = [&](const std::string& worker, const Error& why) {
      missing.push_back(worker);
      if (first.empty()) first = why.where + ": " + why.what;
    };
    const auto left = [&] { return static_cast<std::int32_t>(named_.workers.size() + 1 - missing.size()); };
    auto ranks = connect_ranks(named_.workers, named_.key, named_.setup,
                               {absent, without, [&] { return left() >= named_.least && go_on(); }});
    if (left() < named_.least)
      return Error{ErrorCode::kResource,
                   fmt::format("{}; {} ranks are left, and {} are needed", first, left(), named_.least), "",
                   "start the worker again"};
    const std::lock_guard lock(mutex_);
    missing_ = std::move(missing);
    return ranks;
  }

  const RankModels models_;
  const LoadOptions options_;
  const NamedRanks named_;
  const Log log_;
  bool again_ = false;
  PartSums sums_{};
  std::mutex mutex_;  ///< of missing_
  std::vector<std::string> missing_;
};

Expected<RunningBackend> make_ranks(const Model& model, const std::string& path, const LoadOptions& options,
                                    const Log& log) {
  (void)path;
  DLLM_CHECK_OK(check_load(options, ranks_reader()));
  DLLM_CHECK_OK(check_cpu_arithmetic(options));
  const std::shared_ptr<const Model> not_owned(std::shared_ptr<const Model>(), &model);
  RankModels models{not_owned, nullptr, /*complete=*/true};
  DLLM_TRY(models.drafts, open_drafts(model, options, log));
  DLLM_TRY(NamedRanks named, NamedRanks::read(models, options));
  const bool mpi = named.mpi;
  const auto drafts = models.drafts;
  const auto maker = std::make_shared<GroupMaker>(std::move(models), options, std::move(named), log);
  DLLM_TRY(RegroupingBackend::Group first, maker->make(Absent::kNone, [] { return true; }));
  RunningBackend running;
  running.isa = first.isa;
  running.arithmetic = first.arithmetic;
  running.threads = first.threads;
  RegroupingBackend::Maker again;
  again.wanted = first.ranks;
  if (!mpi) {
    again.make = [maker](Absent absent, const std::function<bool()>& go_on) { return maker->make(absent, go_on); };
    again.any_returned = [maker](const std::function<bool()>& go_on) { return maker->any_returned(go_on); };
  }
  auto backend = std::make_unique<RegroupingBackend>(std::move(first), std::move(again));
  running.ranks = backend.get();
  if (drafts) running.files = drafts->all_files();
  auto joined = std::make_unique<JoinedPasses>(std::move(backend));
  running.second_path = [passes = joined.get(), maker](int threads) -> Expected<std::unique_ptr<PassRunner>> {
    (void)threads;  // of ranks, whose passes all run one after the other
    return passes->second_path();
  };
  running.backend = std::move(joined);
  return running;
}

/// One rank 0, from its offer to its leaving. `model`: null: rank 0 sends its weights.
Expected<void> serve_leader(const std::shared_ptr<const Model>& model, const RankWorker& worker, RankListener& listener,
                            const RankListener::Offer& offer, const std::string& fingerprint) {
  auto setup = RankSetup::decode(offer.bytes);
  std::string refusal = setup ? "" : setup.error().message();
  if (setup && setup->version != DLLM_VERSION)
    refusal = fmt::format("runs dllm {}, rank 0 runs {}", DLLM_VERSION, setup->version);
  else if (setup && model != nullptr && setup->model != fingerprint)
    refusal = fmt::format("has another model: {}, rank 0 has {}", fingerprint, setup->model);
  LoadOptions options;
  if (refusal.empty()) {
    options.threads = worker.threads;
    options.isa = worker.isa;
    options.cache_type = setup->cache_type, options.activations = setup->activations;
    options.arithmetic = setup->arithmetic, options.attention_arithmetic = setup->attention_arithmetic;
    if (const auto known = check_load(options, cpu_reader()); !known) refusal = known.error().message();
  }
  if (!refusal.empty()) {
    listener.refuse(refusal);
    return Error{ErrorCode::kMismatch, "a rank 0 was refused: this worker " + refusal, worker.listen,
                 "start all ranks with the same version, model and options"};
  }
  DLLM_TRY(const std::unique_ptr<Communicator> ranks, listener.accept());
  DLLM_TRY(const RankFacts ignored, measure_ranks(*ranks));
  const PartFolder folder(worker.cache, worker.cache_bytes, /*keeps=*/!worker.key_file.empty());
  const RankModels mine{model, nullptr, /*complete=*/false, worker.model_path};
  DLLM_TRY(const RankModels known, share_models(mine, *ranks, SplitKind::kOutputs, folder, {worker.tell, {}, nullptr}));
  DLLM_TRY(const RunningBackend own, make_parts(known, cpu_options(options), *ranks, SplitKind::kOutputs));
  return follow_ranks(*own.backend, *ranks);
}

}  // namespace

Expected<void> run_rank_worker(std::shared_ptr<const Model> model, const RankWorker& worker, const Log& log) {
  DLLM_TRY(const RanksKey key, read_ranks_key(worker.key_file));
  LoadOptions own;
  own.threads = worker.threads, own.isa = worker.isa;
  DLLM_CHECK_OK(check_load(own, cpu_reader()));
  const std::string fingerprint = model != nullptr ? model_fingerprint(*model) : "";
  DLLM_TRY(const std::unique_ptr<RankListener> listener, RankListener::open(worker.listen, key));
  if (worker.ready) worker.ready(listener->port());
  constexpr int kAskMs = 200;
  for (;;) {
    RankListener::Offer offer;
    DLLM_TRY(const bool came, listener->wait(kAskMs, offer));
    if (!came) continue;
    auto served = serve_leader(model, worker, *listener, offer, fingerprint);
    if (!worker.stay) return served;
    if (!served) log.warning("{}", served.error().message());
  }
}

BackendEntry ranks_backend() {
  BackendEntry entry{"ranks", "this processor and those of workers, each with a part of the model"};
  entry.missing = tcp_missing();
  if (!entry.missing.empty()) return entry;
  entry.make = make_ranks;
  entry.readers = {ranks_reader()};
  entry.options = {
      load_rows::own_words("workers", "HOST:PORT,...", "none",
                           "the other ranks: where 'dllm worker' listens, separated by commas; mpi for "
                           "those that mpirun or srun has started; implies --backend ranks"),
      load_rows::of_path(load_rows::own_words("workers_key", "FILE", "none, for workers on this machine only",
                                              "a file with the secret line that the workers have too")),
      load_rows::own_named("split", {"auto", "outputs", "rows", "layers"}, "auto",
                           "how ranks share the work: outputs of products, rows of a step, or layers"),
      load_rows::own_words("least_ranks", "N", "those whose memory holds the model",
                           "when a rank is lost, serve goes on with so many, this one included")};
  entry.implied_by = "workers";
  return entry;
}

}  // namespace dllm
