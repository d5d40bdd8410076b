#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/calibration_flags.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/write_report.h"
#include "base/try.h"
#include "model/model.h"
#include "model/source.h"
#include "quant/importance_maker.h"

namespace dllm::app {
namespace {

class Imatrix final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Model");
    flags.add({.names = {"-m", "--model"},
               .value = "FILE",
               .help = "GGUF file or Hugging Face directory, in the best type that there is",
               .takes_path = true,
               .apply = into(input_)});
    flags.group("Calibration");
    calibration_.add_texts(flags, ", which the model reads");
    flags.group("Output");
    flags.add({.names = {"-o", "--outfile"},
               .value = "FILE",
               .help = "the importance matrix to write",
               .takes_path = true,
               .apply = into(output_)});
    output_flags_.add(flags);
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    for (const char* name : {"--model", "--calibration", "--outfile"})
      if (!flags.given(name)) return Error{ErrorCode::kUsage, "is missing", name, "see dllm imatrix --help"};
    DLLM_CHECK_OK(output_flags_.check(output_));
    DLLM_TRY(ModelSource source, open_source(input_));
    DLLM_TRY(const auto model, Model::load(std::move(source)));
    const CalibrationSetting& setting = calibration_.setting();
    DLLM_TRY(const auto canvases, setting.canvases()(*model));
    ProgressLine progress(session.terminal);
    ImportanceOptions options;
    options.dataset =
        fmt::format("{}: {}", std::filesystem::path(setting.path).filename().string(), setting.description());
    options.threads = output_flags_.threads();
    options.progress = [&](std::int64_t done, std::int64_t all) {
      progress.show(static_cast<double>(done) / static_cast<double>(all), "canvases");
    };
    options.cancelled = [&] { return session.interrupt.requested(); };
    session.interrupt.arm();
    const auto report = write_importance(*model, canvases, options, output_, output_flags_.replace());
    session.interrupt.disarm();
    progress.clear();
    if (!report) return report.error();
    tell(*report, session.terminal);
    return kExitOk;
  }

 private:
  void tell(const ImportanceReport& report, Terminal& terminal) const {
    if (report.unused_experts > 0)
      terminal.err << fmt::format("warning: no row used {} experts; more texts would reach them\n",
                                  report.unused_experts);
    if (output_flags_.json()) {
      const nlohmann::ordered_json json = {{"path", output_},
                                           {"matrices", report.matrices},
                                           {"canvases", report.canvases},
                                           {"rows", report.rows},
                                           {"unused_experts", report.unused_experts}};
      terminal.out << dump(json) << "\n";
    } else {
      terminal.out << fmt::format("{}: {} matrices, {} canvases, {} rows\n", output_, report.matrices, report.canvases,
                                  report.rows);
    }
  }

  std::string input_, output_;
  CalibrationFlags calibration_;
  OutputFlags output_flags_;
};

}  // namespace

std::unique_ptr<Verb> make_imatrix() { return std::make_unique<Imatrix>(); }

}  // namespace dllm::app
