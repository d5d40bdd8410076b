#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/write_report.h"
#include "base/try.h"
#include "quant/make_model.h"

namespace dllm::app {
namespace {

/// An optional size; the library knows its range.
Apply into_size(std::optional<std::int64_t>& target) {
  return [&target](const std::string& value) -> Expected<void> {
    target = parse_number<std::int64_t>(value);
    if (target) return {};
    return bad_value(fmt::format("'{}' is not an integer", value));
  };
}

class MakeModel final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Model");
    std::vector<std::string> names;
    for (const ModelShape& shape : model_shapes()) names.emplace_back(shape.name);
    flags.add({.names = {"--shape"},
               .value = "NAME",
               .help = "the model whose shape is used",
               .choices = std::move(names),
               .apply = into(shape_)});
    flags.add({.names = {"--list"}, .help = "list the shapes and exit", .apply = into(list_)});
    flags.add({.names = {"--layers"},
               .value = "N",
               .help = "another number of layers",
               .default_text = "the shape's",
               .apply = into_size(options_.shape.layers)});
    flags.add({.names = {"--vocab"},
               .value = "N",
               .help = "another number of tokens",
               .default_text = "the shape's",
               .apply = into_size(options_.shape.vocab)});
    flags.add({.names = {"--context"},
               .value = "N",
               .help = "another context length",
               .default_text = "the shape's",
               .apply = into_size(options_.shape.context)});
    flags.add({.names = {"-s", "--seed"},
               .value = "N",
               .help = "seed of the weights",
               .default_text = "0",
               .apply = into(options_.seed)});
    flags.group("Types");
    flags.add({.names = {"--type"},
               .value = "TYPE",
               .help = "type of the matrices, as in dllm quantize",
               .default_text = options_.type,
               .choices = recipe_names(),
               .apply = into(options_.type)});
    add_recipe_flags(flags, options_.recipe);
    flags.group("Output");
    flags.add({.names = {"-o", "--outfile"},
               .value = "FILE",
               .help = "the GGUF file to write",
               .takes_path = true,
               .apply = into(output_)});
    output_flags_.add(flags);
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    Terminal& terminal = session.terminal;
    if (list_) return list(terminal);
    for (const char* name : {"--shape", "--outfile"})
      if (!flags.given(name)) return Error{ErrorCode::kUsage, "is missing", name, "see dllm make-model --help"};
    DLLM_TRY(const ModelShape* const shape, find_shape(shape_));
    DLLM_TRY(const Recipe* const recipe, find_recipe(options_.type));
    options_.type = recipe->name;
    DLLM_CHECK_OK(output_flags_.check(output_));
    ProgressLine progress(terminal);
    options_.threads = output_flags_.threads();
    options_.replace = output_flags_.replace();
    options_.progress = [&](std::string_view tensor, double fraction) { progress.show(fraction, tensor); };
    options_.cancelled = [&] { return session.interrupt.requested(); };
    session.interrupt.arm();
    const auto report = make_model(*shape, options_, output_);
    session.interrupt.disarm();
    progress.clear();
    if (!report) return report.error();
    terminal.err << fallback_lines(report->fallbacks);
    terminal.out << (output_flags_.json() ? json(*report) : report_text(*report, output_));
    return kExitOk;
  }

 private:
  Expected<ExitCode> list(Terminal& terminal) const {
    for (const ModelShape& shape : model_shapes()) {
      DLLM_TRY(const ModelSource source, shape_source(shape));
      DLLM_TRY(const auto label, source.metadata.string("general.size_label"));
      terminal.out << fmt::format("{:<12}{:>6}  {}\n", shape.name, label.value_or(""), shape.summary);
    }
    return kExitOk;
  }

  std::string json(const WriteReport& report) const {
    auto result = report_json(report, output_, options_.type);
    result.erase("bytes_in");  // nothing was read
    result["shape"] = shape_;
    result["seed"] = options_.seed;
    return dump(result) + "\n";
  }

  MakeOptions options_;
  std::string shape_, output_;
  bool list_ = false;
  OutputFlags output_flags_;
};

}  // namespace

std::unique_ptr<Verb> make_make_model() { return std::make_unique<MakeModel>(); }

}  // namespace dllm::app
