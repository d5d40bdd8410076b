// dllm npu sweep: a design space, evaluated with the analytical model.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "app/npu/flags.h"
#include "base/output_file.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "npu_compiler/sweep/run.h"
#include "npu_compiler/sweep/simulated_front.h"

namespace dllm::app {
namespace {

constexpr std::size_t kShownRows = 20;

const npu::SimulatedPoint* simulated_at(const npu::SweepReport& report, std::int64_t point) {
  const auto found = std::ranges::lower_bound(report.simulated, point, {}, &npu::SimulatedPoint::point);
  return found != report.simulated.end() && found->point == point ? &*found : nullptr;
}

std::string front_text(const npu::SweepSpec& spec, const npu::SweepReport& report) {
  const std::size_t x = npu::metric_index(spec.plot_x), y = npu::metric_index(spec.plot_y);
  std::string text = fmt::format("Pareto front of {} and {}:\n", spec.plot_x, spec.plot_y);
  std::size_t shown = 0;
  for (const npu::SweepRow& row : report.rows) {
    if (!row.pareto || ++shown > kShownRows) continue;
    text += fmt::format("  {:>12.4g} {:>12.4g} ", row.metrics[x], row.metrics[y]);
    const std::vector<std::string> values = spec.at(row.point);
    for (std::size_t a = 0; a < spec.axes.size(); ++a) text += fmt::format(" {}={}", spec.axes[a].key, values[a]);
    if (const npu::SimulatedPoint* found = simulated_at(report, row.point))
      text += fmt::format("; simulated: warm {:.4g} ms, refine {:.4g} ms", found->warm_ms, found->refine_ms);
    text += "\n";
  }
  if (shown > kShownRows) text += fmt::format("  and {} more\n", shown - kShownRows);
  return text;
}

nlohmann::ordered_json rows_json(const npu::SweepSpec& spec, const npu::SweepReport& report) {
  auto rows = nlohmann::ordered_json::array();
  for (const npu::SweepRow& row : report.rows) {
    nlohmann::ordered_json one;
    const std::vector<std::string> values = spec.at(row.point);
    for (std::size_t a = 0; a < spec.axes.size(); ++a) one["point"][spec.axes[a].key] = values[a];
    for (std::size_t i = 0; row.error == 0 && i < row.metrics.size(); ++i)
      one["metrics"][std::string(npu::sweep_metrics()[i].name)] = row.metrics[i];
    one["over_limit"] = row.over_limit < 0 ? "" : spec.limits[static_cast<std::size_t>(row.over_limit)].metric;
    one["pareto"] = row.pareto;
    if (const npu::SimulatedPoint* found = simulated_at(report, row.point))
      one["simulated"] = {{"warm_ms", found->warm_ms}, {"refine_ms", found->refine_ms}};
    one["hash"] = fmt::format("{:016x}", row.hash);
    one["error"] = report.errors[row.error];
    rows.push_back(std::move(one));
  }
  return rows;
}

class NpuSweep final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Input");
    flags.positionals("SPEC.toml", "the design space", 1, words_);
    flags.add({.names = {"--db"},
               .value = "FILE",
               .help = "results, kept between runs",
               .default_text = "SPEC.sqlite",
               .takes_path = true,
               .apply = into(database_)});
    flags.add({.names = {"-t", "--threads"},
               .value = "N",
               .help = "points evaluated at once",
               .default_text = "all CPUs",
               .apply = into(threads_, 1, 1024)});
    flags.add({.names = {"--range"},
               .value = "FIRST:COUNT",
               .help = "only these points of the product, for sweeps over several machines",
               .default_text = "all",
               .apply = [this](const std::string& text) -> Expected<void> {
                 const std::size_t colon = std::min(text.find(':'), text.size());
                 const auto first = parse_number<std::int64_t>(text.substr(0, colon));
                 const auto count = parse_number<std::int64_t>(text.substr(std::min(colon + 1, text.size())));
                 if (!first || !count || *first < 0 || *count < 1)
                   return bad_value(fmt::format("'{}' is not a range of points", text), "FIRST:COUNT, as in 0:1000");
                 range_ = {*first, *count};
                 return {};
               }});
    flags.group("Search");
    flags.add({.names = {"--search"},
               .help = "look for the Pareto front with NSGA-II instead of evaluating every point",
               .apply = into(search_)});
    flags.add({.names = {"--budget"},
               .value = "N",
               .help = "points that a search may evaluate",
               .default_text = "a twentieth of all, at least 64",
               .apply = into(options_.budget, 1, std::int64_t{1} << 40)});
    flags.add(
        {.names = {"--seed"}, .value = "N", .help = "of a search", .default_text = "1", .apply = into(options_.seed)});
    flags.group("Front");
    flags.add(
        {.names = {"--simulate"},
         .help = "map, compile and simulate both steps of the front's points; what is slower than priced leaves it",
         .apply = into(simulate_)});
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "json"});
    flags.add({.names = {"--csv"},
               .value = "FILE",
               .help = "every point",
               .takes_path = true,
               .written = true,
               .apply = into(csv_)});
    flags.add({.names = {"--svg"},
               .value = "FILE",
               .help = "plot of the points and the Pareto front",
               .takes_path = true,
               .written = true,
               .apply = into(svg_)});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    if (words_.empty()) return Error{ErrorCode::kUsage, "there is no design space", "", "dllm npu sweep SPEC.toml"};
    const std::string& file = words_.front();
    DLLM_TRY(const std::string text, read_text(file, session.terminal));
    DLLM_TRY(const npu::SweepSpec spec, npu::parse_sweep(text, file));
    if (database_.empty()) database_ = std::filesystem::path(file).replace_extension(".sqlite").string();
    DLLM_TRY(npu::SweepStore store, npu::SweepStore::open(database_));
    for (const std::string& target : {csv_, svg_})
      if (!target.empty()) DLLM_CHECK_OK(check_result(target, made_of(std::vector{file, database_})));
    ProgressLine progress(session.terminal);
    if (!search_ && (flags.given("--budget") || flags.given("--seed")))
      return Error{ErrorCode::kUsage, "--budget and --seed belong to a search", "", "add --search"};
    if (search_ && flags.given("--range"))
      return Error{ErrorCode::kUsage, "--search covers the whole space", "--range", "leave one of them out"};
    const int threads = threads_ > 0 ? threads_ : default_thread_count();
    const auto show = [&](std::int64_t done, std::int64_t all) {
      progress.show(static_cast<double>(done) / static_cast<double>(all), fmt::format("{} of {} points", done, all));
      return true;
    };
    const auto start = std::chrono::steady_clock::now();
    auto report = search_ ? npu::search_sweep(spec, store, threads, options_, show)
                          : npu::run_sweep(spec, store, threads, show, range_);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (report && simulate_) {
      const auto simulated = npu::simulate_front(spec, *report, npu_cache_folder(), show);
      if (!simulated) report = simulated.error();
    }
    progress.clear();
    if (!report) return report.error();
    const OutputOptions sources = made_of(std::vector{file, database_});
    if (!csv_.empty()) DLLM_CHECK_OK(write_result(session, csv_, npu::sweep_csv(spec, *report), sources));
    if (!svg_.empty()) DLLM_CHECK_OK(write_result(session, svg_, npu::sweep_svg(spec, *report), sources));
    if (output_ == "json") {
      nlohmann::ordered_json json = provenance(session.command);
      json["name"] = spec.name;
      json["points"] = spec.points();
      if (search_) json["search"] = {{"looked_at", report->rows.size()}, {"seed", options_.seed}};
      json["seconds"] = took.count();
      json["evaluated"] = report->evaluated;
      json["reused"] = report->reused;
      json["duplicates"] = report->duplicates;
      json["invalid"] = report->invalid;
      json["rows"] = rows_json(spec, *report);
      session.terminal.out << dump(json) << "\n";
    } else {
      session.terminal.out << fmt::format(
                                  "{}: {} of {} points, {} evaluated, {} from {}, {} the same as another, {} "
                                  "invalid; {:.2f} s\n",
                                  spec.name, report->rows.size(), spec.points(), report->evaluated, report->reused,
                                  database_, report->duplicates, report->invalid, took.count())
                           << front_text(spec, *report);
    }
    return kExitOk;
  }

 private:
  std::vector<std::string> words_;
  std::string database_, csv_, svg_, output_;
  std::int32_t threads_ = 0;
  bool search_ = false, simulate_ = false;
  npu::SearchOptions options_;
  npu::SweepRange range_;
};

}  // namespace

std::unique_ptr<Verb> make_npu_sweep() { return std::make_unique<NpuSweep>(); }

}  // namespace dllm::app
