// The backend `ranks`: this processor and those of workers, each with a part of the model.
#include "engine/backend/ranks.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/input_file.h"
#include "base/try.h"
#include "dllm/version.h"
#include "engine/backend/cpu.h"
#include "engine/backend/ranks_setup.h"
#include "engine/backends.h"
#include "engine/load_options.h"
#include "engine/load_rows.h"
#include "ranks/mpi.h"
#include "ranks/ranked_backend.h"

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

/// Estimated: multiplications a second of one thread with int8 dot products, on processors of laptops.
constexpr double kThreadMultiplications = 3e10;
/// The rows of a block of the usual methods, for which `auto` chooses.
constexpr std::int64_t kUsualRows = 32;

const LoadReader& ranks_reader() {
  static const LoadReader reader{"ranks",
                                 {"threads", "isa", "cache_type", "activations", "arithmetic", "attention_arithmetic",
                                  "workers", "workers_key", "split"},
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

RankSetup setup_of(const Model& model, const LoadOptions& options) {
  return {DLLM_VERSION,        model_fingerprint(model), options.cache_type,
          options.activations, options.arithmetic,       options.attention_arithmetic};
}

/// Rank 0's choice: as the options say, or by what it measures.
Expected<SplitKind> choose(const Model& model, const std::string& name, const RankFacts& facts, int threads,
                           const Log& log) {
  for (const SplitKind kind : {SplitKind::kOutputs, SplitKind::kRows, SplitKind::kLayers})
    if (name == split_name(kind)) return kind;
  DLLM_TRY(const SplitChoice choice, choose_split(model, facts, kUsualRows, threads * kThreadMultiplications));
  log.warning("--split auto chose {}", choice.reason);  // what a machine chooses by itself, it prints
  return choice.kind;
}

/// The ranks that the options name. Errors: those of mpi_ranks() and connect_ranks().
Expected<std::shared_ptr<Communicator>> reach_ranks(const Model& model, const LoadOptions& options) {
  const std::vector<std::string> workers = split_commas(load_rows::own_text(options, "workers"));
  if (workers.empty())
    return Error{ErrorCode::kUsage, "--backend ranks needs other ranks", "--workers",
                 "start 'dllm worker --listen HOST:PORT' on each, and list them"};
  const RankSetup setup = setup_of(model, options);
  const std::string key_file = load_rows::own_text(options, "workers_key");
  if (std::ranges::count(workers, "mpi") == 0) {
    if (!options.rope_scaling.empty())
      return Error{ErrorCode::kUsage, "workers read the model without it", "--rope-scaling",
                   "leave it out, or use --workers mpi, where all ranks get the same options"};
    DLLM_TRY(const RanksKey key, read_ranks_key(key_file));
    return connect_ranks(workers, key, setup.encoded());
  }
  if (workers.size() > 1)
    return Error{ErrorCode::kUsage, "mpi stands for all other ranks, and is listed with more", "--workers",
                 "give mpi alone, or addresses"};
  if (!key_file.empty())
    return Error{ErrorCode::kUsage, "MPI has no key", "--workers-key", "leave it out with --workers mpi"};
  DLLM_TRY(std::shared_ptr<Communicator> ranks, mpi_ranks());
  DLLM_TRY(const std::vector<std::byte> first, ranks->broadcast(setup.encoded()));
  Expected<void> same;
  if (first != setup.encoded())
    same = Error{ErrorCode::kMismatch, "was started with another model or other options than rank 0", "mpi",
                 "give all ranks the same command"};
  DLLM_CHECK_OK(agree(*ranks, same));
  return ranks;
}

/// A process that MPI started beside the first: it has no answer of its own to give, and ends with the first.
[[noreturn]] void follow_to_the_end(const Model& model, CpuOptions cpu, std::shared_ptr<Communicator> ranks,
                                    const Log& log) {
  auto followed = [&]() -> Expected<void> {
    DLLM_TRY(const std::unique_ptr<CpuBackend> own, make_part(model, std::move(cpu), *ranks, SplitKind::kOutputs));
    return follow_ranks(*own, *ranks);
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

Expected<RunningBackend> make_ranks(const Model& model, const std::string& path, const LoadOptions& options,
                                    const Log& log) {
  (void)path;
  DLLM_CHECK_OK(check_load(options, ranks_reader()));
  DLLM_TRY(std::shared_ptr<Communicator> ranks, reach_ranks(model, options));
  DLLM_TRY(const RankFacts facts, measure_ranks(*ranks));
  CpuOptions cpu = cpu_options(options);
  if (ranks->rank() != 0) follow_to_the_end(model, std::move(cpu), std::move(ranks), log);
  cpu.progress = options.progress;
  EndOthers guard(*ranks);
  const auto split = choose(model, load_rows::own_text(options, "split"), facts, cpu.threads, log);
  auto made = make_part(model, std::move(cpu), *ranks, split);
  guard.release();  // an error is known to all
  if (!made) return std::move(made).error();
  std::unique_ptr<CpuBackend> own = *std::move(made);
  RunningBackend running;
  running.isa = own->isa();
  running.arithmetic = fmt::format("{}, {} ranks by {}", own->arithmetic(), ranks->size(), split_name(*split));
  running.threads = own->threads();
  running.backend = std::make_unique<RankedBackend>(std::move(own), ranks, log);
  return running;
}

/// One rank 0, from its offer to its leaving.
Expected<void> serve_leader(const Model& model, const RankWorker& worker, RankListener& listener,
                            const RankListener::Offer& offer, const std::string& fingerprint) {
  auto setup = RankSetup::decode(offer.bytes);
  std::string refusal = setup ? "" : setup.error().message();
  if (setup && setup->version != DLLM_VERSION)
    refusal = fmt::format("runs dllm {}, rank 0 runs {}", DLLM_VERSION, setup->version);
  else if (setup && setup->model != fingerprint)
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
  DLLM_TRY(const std::unique_ptr<CpuBackend> own, make_part(model, cpu_options(options), *ranks, SplitKind::kOutputs));
  return follow_ranks(*own, *ranks);
}

}  // namespace

Expected<void> run_rank_worker(const Model& model, const RankWorker& worker, const Log& log) {
  DLLM_TRY(const RanksKey key, read_ranks_key(worker.key_file));
  LoadOptions own;
  own.threads = worker.threads, own.isa = worker.isa;
  DLLM_CHECK_OK(check_load(own, cpu_reader()));
  const std::string fingerprint = model_fingerprint(model);
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
                           "those that mpirun or srun has started; asks for --backend ranks"),
      load_rows::of_path(load_rows::own_words("workers_key", "FILE", "none, for workers on this machine only",
                                              "a file with the secret line that the workers have too")),
      load_rows::own_named("split", {"auto", "outputs", "rows", "layers"}, "auto",
                           "how ranks share the work: outputs of products, rows of a step, or layers")};
  entry.implied_by = "workers";
  return entry;
}

}  // namespace dllm
