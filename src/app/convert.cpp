#include <fmt/format.h>

#include <fmt/ranges.h>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "app/cli/calibration_flags.h"
#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/write_report.h"
#include "base/log.h"
#include "base/try.h"
#include "engine/backends.h"
#include "model/source.h"
#include "model/vision.h"
#include "quant/calibrated.h"
#include "quant/write_vision.h"

namespace dllm::app {
namespace {

namespace fs = std::filesystem;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Common to convert and quantize: the flags of writing, and the writing.
class WriteVerb : public Verb {
 public:
  Expected<ExitCode> write(const std::string& input, const std::string& output, Session& session) {
    Terminal& terminal = session.terminal;
    DLLM_TRY(const Recipe* const recipe, find_recipe(options_.type));
    options_.type = recipe->name;
    DLLM_CHECK_OK(output_.check(output));
    DLLM_TRY(const ModelSource source, open_source(input));
    for (const std::string& warning : source.warnings) Log().warning("{}", warning);
    ProgressLine progress(terminal);
    options_.threads = output_.threads();
    options_.replace = output_.replace();
    options_.progress = [&](std::string_view tensor, std::int64_t done, std::int64_t total) {
      progress.show(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1, tensor);
    };
    options_.log = Log([&](LogLevel, const std::string& text) {
      progress.clear();
      terminal.err << "warning: " << sanitize(text) << "\n";
    });
    options_.cancelled = [&] { return session.interrupt.requested(); };
    session.interrupt.arm();
    auto report = write_quantized(source, options_, calibration_, output);
    session.interrupt.disarm();
    progress.clear();
    if (!report) return std::move(report).error();
    DLLM_CHECK_OK(finish(output, terminal));
    for (const std::string& warning : report->warnings) terminal.err << "warning: " << sanitize(warning) << "\n";
    terminal.err << fallback_lines(report->fallbacks);
    terminal.out << (output_.json() ? dump(report_json(*report, output, options_.type)) + "\n"
                                    : report_text(*report, output));
    return kExitOk;
  }

 protected:
  /// Called when the file is complete, before the report.
  virtual Expected<void> finish(const std::string& output, Terminal& terminal) {
    (void)output, (void)terminal;
    return {};
  }
  void add_shared(Flags& flags) {
    add_recipe_flags(flags, options_.recipe);
    flags.add({.names = {"--model-name"},
               .value = "TEXT",
               .help = "name of the model in the file",
               .default_text = "the source's",
               .apply = into(options_.model_name)});
    flags.add({.names = {"--canvas-length"},
               .value = "N",
               .help = "tokens of an answer that runs generate by default",
               .default_text = "the source's",
               .apply = into(options_.canvas_length, 1, 1 << 20)});
    flags.add({.names = {"--block-length"},
               .value = "N",
               .help = "positions that runs decode together by default",
               .default_text = "the source's",
               .apply = into(options_.block_length, 1, 1 << 20)});
    output_.add(flags);
  }

  int writing_threads() const { return output_.threads(); }
  bool replaces() const { return output_.replace(); }

  WriteOptions options_;
  CalibrationOptions calibration_;

 private:
  OutputFlags output_;
};

class Convert final : public WriteVerb {
 public:
  void declare(Flags& flags) override {
    flags.group("Conversion");
    flags.positionals("DIR", "Hugging Face directory: config.json, *.safetensors, tokenizer.json", 1, input_);
    flags.add({.names = {"-o", "--outfile"},
               .value = "FILE",
               .help = "the GGUF file to write",
               .default_text = "DIR-TYPE.gguf in the current directory",
               .takes_path = true,
               .apply = into(output_)});
    flags.add({.names = {"--type", "--outtype"},
               .value = "TYPE",
               .help = "type of the matrices",
               .default_text = "F16, with --layout the device's",
               .choices = recipe_names(),
               .apply = into(type_)});
    flags.add({.names = {"--mmproj"},
               .value = "FILE",
               .help = "write the model's vision tower too, to this GGUF file: matrices in F32, BF16 or Q8_0 if that "
                       "is the type, else in F16",
               .takes_path = true,
               .apply = into(mmproj_)});
    flags.add({.names = {"--layout"}, .value = "DEVICE", .help = layout_help(), .apply = into(layout_)});
    add_shared(flags);
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    if (input_.empty()) return Error{ErrorCode::kUsage, "no model is named", "dllm convert", "see dllm convert --help"};
    DLLM_CHECK_OK(find_layout());
    if (!type_.empty()) options_.type = type_;
    DLLM_TRY(const Recipe* const recipe, find_recipe(options_.type));
    if (output_.empty()) {
      fs::path directory = fs::path(input_[0]).lexically_normal();
      if (!directory.has_filename()) directory = directory.parent_path();
      std::error_code failure;
      if (directory == ".") directory = fs::current_path(failure);
      output_ = fmt::format("{}-{}.gguf", directory.filename().string(), lower(std::string(recipe->name)));
    }
    if (!mmproj_.empty()) DLLM_CHECK_OK(write_tower(recipe->name, session.terminal));
    return write(input_[0], output_, session);
  }

 private:
  /// Before the model: what is wrong with the tower is known before minutes are spent.
  Expected<void> write_tower(std::string_view type, Terminal& terminal) {
    std::error_code ignored;
    if (mmproj_ == output_ || fs::weakly_canonical(mmproj_, ignored) == fs::weakly_canonical(output_, ignored) ||
        fs::equivalent(mmproj_, output_, ignored))
      return Error{ErrorCode::kUsage, "the tower and the model would be one file", "--mmproj", "give another name"};
    DLLM_TRY(const ModelSource tower, vision_source(input_[0]));
    DLLM_CHECK_OK(write_vision(tower, std::string(type), writing_threads(), replaces(), mmproj_));
    terminal.err << fmt::format("{} tensors of the vision tower are in {}\n", tower.tensors.size(), mmproj_);
    return {};
  }

  Expected<void> finish(const std::string& output, Terminal& terminal) override {
    if (tiles_ == nullptr) return {};
    auto report = tiles_->write(output, layout_);
    if (!report) {  // rows are not what was asked for
      std::error_code ignored;
      fs::remove(output, ignored);
      return std::move(report).error();
    }
    terminal.err << fmt::format("{} matrices in tiles of {}, {} tensors in rows\n", report->tiled, layout_,
                                report->kept);
    return {};
  }

  static std::string layout_help() {
    std::vector<std::string> kinds;
    for (const BackendEntry& entry : backends())
      if (entry.tiles) kinds.push_back(fmt::format("{} (only --backend {} reads them)", entry.tiles->kind, entry.name));
    return fmt::format("store matrices in the tiles of {}, for devices with the same array", fmt::join(kinds, " or "));
  }

  /// Finds who writes --layout; its type becomes the default.
  Expected<void> find_layout() {
    if (layout_.empty()) return {};
    Error unknown{ErrorCode::kUnsupported, "no backend of this build reads tiles", "--layout", "leave it out"};
    for (const BackendEntry& entry : backends()) {
      if (!entry.missing.empty()) unknown.hint = fmt::format("for '{}', {}", entry.name, entry.missing);
      if (!entry.tiles || entry.devices.check == nullptr) continue;
      if (auto known = entry.devices.check(layout_); !known) {
        unknown = std::move(known).error();
        unknown.where = "--layout";
        continue;
      }
      tiles_ = &*entry.tiles;
      DLLM_TRY(options_.type, tiles_->type(layout_));
      if (!type_.empty() && lower(type_) != lower(options_.type))
        return Error{ErrorCode::kUsage, fmt::format("{} has {} weights, not {}", layout_, options_.type, type_),
                     "--layout", "leave --type out"};
      return {};
    }
    return unknown;
  }

  std::vector<std::string> input_;
  std::string output_, type_, layout_, mmproj_;
  const DeviceTiles* tiles_ = nullptr;  ///< of --layout
};

class Quantize final : public WriteVerb {
 public:
  void declare(Flags& flags) override {
    flags.group("Quantization");
    flags.positionals("IN.gguf OUT.gguf TYPE",
                      fmt::format("source, target and type; types: {}", fmt::join(recipe_names(), ", ")), 3, words_);
    flags.add(
        {.names = {"-m", "--model"}, .value = "FILE", .help = "the source", .takes_path = true, .apply = into(input_)});
    flags.add({.names = {"-o", "--outfile"},
               .value = "FILE",
               .help = "the GGUF file to write",
               .takes_path = true,
               .apply = into(output_)});
    flags.add({.names = {"--type"},
               .value = "TYPE",
               .help = "type of the matrices",
               .choices = recipe_names(),
               .apply = into(type_)});
    flags.add({.names = {"--rotate"},
               .value = "PARTS",
               .help =
                   "rotate before rounding, which spreads outliers: heads' values, or these and the residual stream "
                   "(offline), or also, in every step, queries, keys and the inputs of ffn_down (quarot), or the parts "
                   "of offline that are then rounded with less error (selective)",
               .default_text = "none",
               .choices = {"none", "heads", "offline", "quarot", "selective"},
               .apply = into(rotate_)});
    flags.add({.names = {"--rotate-order"},
               .value = "N",
               .help = "of quarot: in every step, rotate blocks of the largest power of two up to N, as NPUs do (their "
                       "VLEN), instead of whole heads and inputs",
               .apply = into(options_.rotation_order, 2, 1 << 30)});
    flags.add({.names = {"--imatrix"},
               .value = "FILE",
               .help = "importance matrix of llama-imatrix: errors in columns with large inputs count more",
               .takes_path = true,
               .apply = into(imatrix_)});
    add_shared(flags);
    calibration_flags_.add(flags);
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    // Words fill in what no flag has set, in llama-quantize's order.
    std::size_t next = 0;
    for (std::string* slot : {&input_, &output_, &type_})
      if (slot->empty() && next < words_.size()) *slot = words_[next++];
    if (next < words_.size())
      return Error{ErrorCode::kUsage, "unexpected argument", words_[next], "see dllm quantize --help"};
    if (input_.empty() || output_.empty() || type_.empty())
      return Error{ErrorCode::kUsage, "source, target and type are needed", "dllm " + flags.verb(),
                   "dllm quantize IN.gguf OUT.gguf TYPE"};
    options_.type = type_;
    DLLM_TRY(options_.rotation, rotation_named(rotate_));
    if (options_.rotation_order > 0 && options_.rotation != Rotation::kQuarot)
      return Error{ErrorCode::kUsage, "a limit of the rotations of every step", "--rotate-order",
                   "give it with --rotate quarot"};
    DLLM_TRY(calibration_, calibration_flags_.options());
    if (!imatrix_.empty()) DLLM_CHECK_OK(read_importance());
    return write(input_, output_, session);
  }

 private:
  Expected<void> read_importance() {
    if (options_.rotation != Rotation::kNone || calibration_.method != "rtn")
      return Error{ErrorCode::kUsage, "an importance matrix is for plain rounding", "--imatrix",
                   "leave out --rotate and --method"};
    DLLM_TRY(Importance importance, Importance::open(imatrix_));
    options_.importance = std::make_shared<const Importance>(std::move(importance));
    options_.recipe.importance = true;
    return {};
  }

  std::vector<std::string> words_;
  std::string input_, output_, type_, imatrix_, rotate_ = "none";
  CalibrationFlags calibration_flags_;
};

}  // namespace

std::unique_ptr<Verb> make_convert() { return std::make_unique<Convert>(); }
std::unique_ptr<Verb> make_quantize() { return std::make_unique<Quantize>(); }

}  // namespace dllm::app
