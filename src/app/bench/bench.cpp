#include "app/bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/bench/answers.h"
#include "app/bench/host.h"
#include "app/bench/list.h"
#include "app/bench/output.h"
#include "app/bench/ranks.h"
#include "app/cli/options.h"
#include "app/cli/verb.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "engine/answer_length.h"
#include "engine/recording.h"

namespace dllm::app {
namespace {

constexpr std::int32_t kMaxPositions = 1 << 20;

class Bench final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.positionals("[step] [generate] [load] [latency]",
                      "what to measure; load and step if neither this, --peak nor --against-autoregression is given", 4,
                      words_);
    flags.group("Measurement");
    flags.add({.names = {"--peak"},
               .help = "print the peaks of the machine, or of a GPU: int8, bf16 or f16, f32, memory reads",
               .apply = into(peak_)});
    flags.add({.names = {"--no-peak"},
               .help = "do not measure the peaks, and omit percentages",
               .apply = into(no_peak_),
               .rare = true});
    flags.add({.names = {"--repetitions"},
               .value = "N",
               .help = "minimum number of measured runs per case",
               .default_text = "5",
               .apply = into(options_.repetitions, 1, 100000)});
    flags.add({.names = {"--warmup"},
               .value = "N",
               .help = "unmeasured runs before each case",
               .default_text = "1",
               .apply = into(options_.warmup, 0, 1000),
               .rare = true});
    flags.add({.names = {"--min-time"},
               .value = "S",
               .help = "repeat short cases until this many seconds are measured",
               .default_text = "0.2",
               .apply = into(options_.min_seconds, 0, 3600)});
    flags.add({.names = {"--against-autoregression"},
               .help = "compare the presets, and --replay, with the same weights run autoregressively",
               .apply = into(against_)});
    add_model_flags(flags);
    add_generate_flags(flags, options_.generate);
    for (const char* name : {"-r", "-c"}) flags.free_name(name);  // rows and contexts of steps here
    add_step_flags(flags);
    add_rank_flags(flags);
    flags.add({.names = {"--early-stop"},
               .help = "generations stop at end-of-sequence tokens, as in dllm run",
               .apply = into(early_stop_),
               .rare = true});
    flags.group("Output");
    add_output_flag(flags, format_, BenchOutput::formats());
  }

  Expected<ExitCode> run(const Flags&, Session& session) override {
    Terminal& terminal = session.terminal;
    if (model_flags_.listed(terminal)) return kExitOk;
    DLLM_CHECK_OK(check_words());
    DLLM_CHECK_OK(check_replays());
    // Work that does not depend on the model's predictions.
    DLLM_CHECK_OK(take_bound_as_canvas(options_.generate));
    if (!options_.generate.exact_length) options_.generate.exact_length = !early_stop_;
    const Json shared = {
        {"time", utc_time()}, {"host", host_json()}, {"build", build_json()}, {"command", session.command}};
    BenchOutput output(terminal.out, format_, shared);
    ProgressLine progress(terminal);
    const BenchWatch watch{[&](const std::string& what) { progress.show(0, what); }, session.interrupt.arm()};
    auto done = measure(output, watch, progress);
    session.interrupt.disarm();
    progress.clear();
    output.finish();
    if (!done) return std::move(done).error();
    return kExitOk;
  }

 private:
  using Json = nlohmann::ordered_json;

  void add_step_flags(Flags& flags) {
    flags.group("Steps");
    flags.add({.names = {"-r", "--rows"},
               .value = "LIST",
               .help = "rows of a step: 1,8,32 or 1-256*2 or 8-64+8",
               .default_text = "1,8,32,128",
               .apply = into_numbers(options_.rows, 1, kMaxPositions)});
    flags.add({.names = {"-c", "--context"},
               .value = "LIST",
               .help = "positions that the rows see, including themselves; if smaller than the rows: only the rows",
               .default_text = "512",
               .apply = into_numbers(options_.contexts, 0, kMaxPositions)});
    flags.add(
        {.names = {"-b", "--batch"},
         .value = "LIST",
         .help = "sequences that share a step, each with its own cache; the largest is also the number of generations",
         .default_text = "1",
         .apply = into_numbers(options_.batches, 1, 4096)});
    flags.add({.names = {"--scored"},
               .value = "N",
               .help = "rows that reach the head: all, none or a number",
               .default_text = options_.scored,
               .apply = into(options_.scored)});
    flags.add({.names = {"--renew-latency"},
               .help = "latency: measure again even if this machine's table exists",
               .apply = into(options_.renew_latency),
               .rare = true});
    flags.group("Generations");
    flags.add({.names = {"-p", "--prompt-tokens"},
               .value = "LIST",
               .help = "random prompt tokens of a generation, which takes the options of dllm run",
               .default_text = "32; recorded lengths with --replay; 128 against autoregression",
               .apply = into_numbers(options_.prompts, 1, kMaxPositions)});
    flags.add({.names = {"--replay"},
               .value = "FILE",
               .help = "replay the passes of a recording (dllm eval --record); may be repeated",
               .takes_path = true,
               .apply = into(options_.replays)});
    flags.add({.names = {"--answers"},
               .value = "N",
               .help = "number of answers to replay, spread from the slowest to the fastest",
               .default_text = "4",
               .apply = into(options_.answers, 1, kMaxPositions),
               .rare = true});
    flags.add({.names = {"--tokens-per-pass"},
               .value = "LIST",
               .help = "tokens per pass to compare with autoregression",
               .default_text = "1,2,4,8",
               .apply = into_numbers(options_.tokens_per_pass, 1, kMaxPositions),
               .rare = true});
  }

  void add_rank_flags(Flags& flags) {
    flags.add({.names = {"--ranks"},
               .help = "of steps over ranks: each rank's work, exchange and waiting in a layer",
               .apply = into(options_.ranks)});
    flags.add({.names = {"--simulate"},
               .value = "LIST",
               .help = "predict steps on so many ranks: 1-64*2; by an exchange that is given, or measured with --ranks",
               .apply = into_numbers(options_.simulate, 1, 1024),
               .rare = true});
    flags.add({.names = {"--exchange-us"},
               .value = "US",
               .help = "simulate: microseconds of an exchange of nothing between two ranks",
               .apply = into(options_.exchange_us, 1e-6, 1e9),
               .rare = true});
    flags.add({.names = {"--exchange-mbps"},
               .value = "MB",
               .help = "simulate: megabytes a second of the connection of a rank",
               .apply = into(options_.exchange_mbps, 1e-6, 1e9),
               .rare = true});
  }

  /// Flags with lists where ModelFlags has one value.
  void add_model_flags(Flags& flags) {
    flags.group("Model");
    flags.add({.names = {"-m", "--model"},
               .value = "PATH",
               .help = fmt::format("GGUF file or Hugging Face directory, with {} also a shape; may be repeated",
                                   virtual_time_flags()),
               .default_text = "the embedded tiny-llada",
               .takes_path = true,
               .apply = into(paths_)});
    flags.add({.names = {"-t", "--threads"},
               .value = "LIST",
               .help = "worker threads; 0: one per CPU",
               .default_text = "0",
               .apply = into_numbers(threads_, 0, 1024)});
    // How positions are scaled changes no time.
    add_load_flags(flags, model_flags_.load,
                   {"threads", "lora", "lora_draft", "rope_scaling", "rope_scale", "rope_original_context"});
    model_flags_.add_list_devices(flags);
  }

  bool wants(std::string_view word) const { return std::find(words_.begin(), words_.end(), word) != words_.end(); }

  Expected<void> check_words() {
    DLLM_TRY(backend_, requested_backend(model_flags_.load));
    if (backend_->virtual_time && backend_->make_valueless == nullptr)
      return Error{ErrorCode::kUnsupported, "this backend has only virtual time, and does not run without values",
                   "--backend " + backend_->name, "leave it out"};
    if (backend_->virtual_time && (words_ != std::vector<std::string>{"generate"} || against_ || peak_))
      return Error{ErrorCode::kUsage, "only `generate` counts virtual time", "--backend " + backend_->name,
                   fmt::format("dllm bench generate --backend {} --replay FILE", backend_->name)};
    if (peak_ && backend_->peaks == nullptr)
      return Error{ErrorCode::kUsage, "this backend's peaks are not measured", "--peak", "leave --backend out"};
    if (words_.empty() && options_.ranks) words_ = {"step"};
    if (words_.empty() && !peak_ && !against_ && options_.simulate.empty()) words_ = {"load", "step"};
    DLLM_CHECK_OK(check_ranks());
    for (const std::string& word : words_)
      if (word != "step" && word != "generate" && word != "load" && word != "latency")
        return Error{ErrorCode::kUsage, "unknown measurement", fmt::format("'{}'", word),
                     choice_hint(word, {"step", "generate", "load", "latency"})};
    if (peak_ && no_peak_) return Error{ErrorCode::kUsage, "is given with --no-peak", "--peak", ""};
    if (paths_.empty()) paths_ = {""};
    for (std::int32_t& count : threads_)
      if (count == 0) count = default_thread_count();
    return {};
  }

  Expected<void> check_ranks() const {
    const bool given = options_.exchange_us > 0 || options_.exchange_mbps > 0;
    if (given && options_.simulate.empty())
      return Error{ErrorCode::kUsage, "nothing is predicted", "--exchange-us", "add --simulate 1-64*2"};
    if (given && options_.exchange_mbps <= 0)
      return Error{ErrorCode::kUsage, "the bandwidth is missing", "--exchange-mbps", "118 for gigabit"};
    if (given && options_.exchange_us <= 0)
      return Error{ErrorCode::kUsage, "the latency is missing", "--exchange-us", "80 for gigabit"};
    if (given && options_.ranks)
      return Error{ErrorCode::kUsage, "the exchange is measured with --ranks", "--exchange-us", "leave one out"};
    if (!options_.simulate.empty() && !given && !options_.ranks)
      return Error{ErrorCode::kUsage, "the exchange is not known", "--simulate",
                   "give --exchange-us and --exchange-mbps, or --ranks with --backend ranks"};
    return {};
  }

  static std::string flag_named(std::string key) {
    std::replace(key.begin(), key.end(), '_', '-');
    return "--" + (key == "context" ? "ctx-size" : key);
  }

  /// A recording and a comparison define how answers are decoded.
  Expected<void> check_replays() const {
    const bool replays = !options_.replays.empty();
    if (replays && !against_ && !wants("generate"))
      return Error{ErrorCode::kUsage, "nothing is generated", "--replay", "add the word generate"};
    if (!replays && !against_) return {};
    if (against_ && wants("generate"))
      return Error{ErrorCode::kUsage, "is a measurement of its own", "--against-autoregression",
                   "leave the word generate out"};
    if (early_stop_)
      return Error{ErrorCode::kUsage, "the recording determines where answers end", "--early-stop",
                   "leave the option out"};
    OptionMap given = given_options(options_.generate);
    if (against_) given.erase("preset");
    if (options_.generate.block_length && !against_) given.emplace("block_length", OptionValue());
    if (options_.generate.context) given.emplace("context", OptionValue());
    if (given.empty()) return {};
    return Error{ErrorCode::kUsage,
                 against_ ? "presets and recordings determine how answers are decoded"
                          : "the recording determines how answers are decoded",
                 flag_named(given.begin()->first), "leave the option out"};
  }

  Expected<void> measure(BenchOutput& output, const BenchWatch& watch, ProgressLine& progress) {
    // Of a device once: they do not depend on the threads here.
    const auto key = [&](std::int32_t threads) { return on_processor(*backend_) ? threads : 0; };
    std::map<std::int32_t, MaybePeaks> peaks;
    for (const std::int32_t threads : threads_) {
      if (!peak_ && (no_peak_ || !wants("step") || backend_->peaks == nullptr)) break;
      const auto [place, is_new] = peaks.try_emplace(key(threads));
      if (!is_new) continue;
      watch.progress("measuring peaks");
      LoadOptions load = model_flags_.load;
      load.threads = threads;
      DLLM_TRY(place->second, peaks_to_compare(*backend_, load, peak_));
      progress.clear();
      if (peak_) output.add(peak_record(place->second->best));
    }
    for (const std::string& path :
         words_.empty() && !against_ && options_.simulate.empty() ? std::vector<std::string>() : paths_)
      for (const std::int32_t threads : threads_) {
        BenchOptions options = options_;
        options.load = model_flags_.load;
        options.load.threads = threads;
        DLLM_CHECK_OK(measure_model(path, options, peaks[key(threads)], output, watch, progress));
      }
    return {};
  }

  Expected<void> measure_model(const std::string& path, const BenchOptions& options, MaybePeaks& peaks,
                               BenchOutput& output, const BenchWatch& watch, ProgressLine& progress) {
    const BenchSink add = [&](const Json& record) {
      progress.clear();
      output.add(record);
    };
    if (backend_->virtual_time) return bench_answers(*backend_, path, options, watch, add);
    if (wants("load")) {
      DLLM_TRY(const Json record, bench_load(path, options, watch));
      add(record);
    }
    if (!options.simulate.empty() && !options.ranks) return simulate_ranks(options, path, nullptr, watch, add);
    if (!wants("step") && !wants("generate") && !wants("latency") && !against_ && options.simulate.empty()) return {};
    DLLM_TRY(BenchModel model, BenchModel::open(path, options.load));
    if (wants("latency")) {
      DLLM_CHECK_OK(bench_latency(model, options, watch, add));
    }
    if (wants("step")) {
      MaybePeaks none;
      MaybePeaks& own = runs_where_peaks_are(*backend_, model.running) ? peaks : none;
      DLLM_CHECK_OK(bench_steps(model, options, own, watch, add));
    }
    if (!options.simulate.empty()) DLLM_CHECK_OK(simulate_ranks(options, path, &model, watch, add));
    if (wants("generate")) {
      DLLM_CHECK_OK(bench_generate(model, options, watch, add));
    }
    if (against_) DLLM_CHECK_OK(bench_against_autoregression(model, options, watch, add));
    return {};
  }

  std::vector<std::string> words_, paths_;
  const BackendEntry* backend_ = nullptr;
  std::vector<std::int32_t> threads_{0};
  ModelFlags model_flags_;
  BenchOptions options_;
  bool peak_ = false, no_peak_ = false, early_stop_ = false, against_ = false;
  std::string format_;
};

}  // namespace

std::unique_ptr<Verb> make_bench() { return std::make_unique<Bench>(); }

}  // namespace dllm::app
