// dllm npu sweep: a design space, evaluated with the analytical model.
#include <filesystem>
#include <fstream>
#include <ostream>

#include "app/npu_flags.h"
#include "app/options.h"
#include "app/report.h"
#include "app/verb.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "npu/sweep/run.h"

namespace dllm::app {
namespace {

constexpr std::size_t kShownRows = 20;

Expected<void> write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) return Error{ErrorCode::kIo, "cannot write", path, ""};
  return {};
}

std::string front_text(const npu::SweepSpec& spec, const npu::SweepReport& report) {
  const std::size_t x = npu::metric_index(spec.plot_x), y = npu::metric_index(spec.plot_y);
  std::string text = fmt::format("Pareto front of {} and {}:\n", spec.plot_x, spec.plot_y);
  std::size_t shown = 0;
  for (const npu::SweepRow& row : report.rows) {
    if (!row.pareto || ++shown > kShownRows) continue;
    text += fmt::format("  {:>12.4g} {:>12.4g} ", row.result.metrics[x], row.result.metrics[y]);
    for (std::size_t a = 0; a < spec.axes.size(); ++a) text += fmt::format(" {}={}", spec.axes[a].key, row.values[a]);
    text += "\n";
  }
  if (shown > kShownRows) text += fmt::format("  and {} more\n", shown - kShownRows);
  return text;
}

nlohmann::ordered_json rows_json(const npu::SweepSpec& spec, const npu::SweepReport& report) {
  auto rows = nlohmann::ordered_json::array();
  for (const npu::SweepRow& row : report.rows) {
    nlohmann::ordered_json one;
    for (std::size_t a = 0; a < spec.axes.size(); ++a) one["point"][spec.axes[a].key] = row.values[a];
    for (std::size_t i = 0; i < row.result.metrics.size(); ++i)
      one["metrics"][std::string(npu::sweep_metrics()[i].name)] = row.result.metrics[i];
    one["over_limit"] = row.over_limit;
    one["pareto"] = row.pareto;
    one["hash"] = row.result.hash;
    one["error"] = row.result.error;
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
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "json"});
    flags.add({.names = {"--csv"}, .value = "FILE", .help = "every point", .takes_path = true, .apply = into(csv_)});
    flags.add({.names = {"--svg"},
               .value = "FILE",
               .help = "plot of the points and the Pareto front",
               .takes_path = true,
               .apply = into(svg_)});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    if (words_.empty()) return Error{ErrorCode::kUsage, "there is no design space", "", "dllm npu sweep SPEC.toml"};
    const std::string& file = words_.front();
    DLLM_TRY(const std::string text, read_text(file, session.terminal));
    DLLM_TRY(const npu::SweepSpec spec, npu::parse_sweep(text, file));
    if (database_.empty()) database_ = std::filesystem::path(file).replace_extension(".sqlite").string();
    DLLM_TRY(npu::SweepStore store, npu::SweepStore::open(database_));
    ProgressLine progress(session.terminal);
    auto report = npu::run_sweep(spec, store, threads_ > 0 ? threads_ : default_thread_count(),
                                 [&](std::int64_t done, std::int64_t all) {
                                   progress.show(static_cast<double>(done) / static_cast<double>(all),
                                                 fmt::format("{} of {} points", done, all));
                                   return true;
                                 });
    progress.clear();
    if (!report) return report.error();
    if (!csv_.empty()) DLLM_CHECK_OK(write_file(csv_, npu::sweep_csv(spec, *report)));
    if (!svg_.empty()) DLLM_CHECK_OK(write_file(svg_, npu::sweep_svg(spec, *report)));
    if (output_ == "json") {
      nlohmann::ordered_json json = provenance(session.command);
      json["name"] = spec.name;
      json["evaluated"] = report->evaluated;
      json["reused"] = report->reused;
      json["duplicates"] = report->duplicates;
      json["invalid"] = report->invalid;
      json["rows"] = rows_json(spec, *report);
      session.terminal.out << dump(json) << "\n";
    } else {
      session.terminal.out << fmt::format(
                                  "{}: {} points, {} evaluated, {} from {}, {} the same as another, {} invalid\n",
                                  spec.name, report->rows.size(), report->evaluated, report->reused, database_,
                                  report->duplicates, report->invalid)
                           << front_text(spec, *report);
    }
    return kExitOk;
  }

 private:
  std::vector<std::string> words_;
  std::string database_, csv_, svg_, output_;
  std::int32_t threads_ = 0;
};

}  // namespace

std::unique_ptr<Verb> make_npu_sweep() { return std::make_unique<NpuSweep>(); }

}  // namespace dllm::app
