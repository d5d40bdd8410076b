#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/fit.h"
#include "app/cli/model_file.h"
#include "app/cli/model_listing.h"
#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "base/try.h"

namespace dllm::app {
namespace {

class Inspect final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Input");
    flags.positionals("FILE", "GGUF file, safetensors file or Hugging Face directory", 1, words_);
    flags.add({.names = {"-m", "--model"},
               .value = "FILE",
               .help = "FILE as a flag",
               .default_text = "the embedded tiny-llada",
               .takes_path = true,
               .apply = into(path_)});
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "json"});
    flags.add({.names = {"--metadata"}, .help = "the metadata only", .apply = into(metadata_)});
    flags.add({.names = {"--tensors"}, .help = "the tensors only", .apply = into(tensors_)});
    flags.add(
        {.names = {"--fit"},
         .help = "only whether the model fits into the memory that is free here, and the passes a second to expect",
         .apply = into(fit_)});
    flags.add({.names = {"--match"},
               .value = "TEXT",
               .help = "only keys and tensors whose name contains this",
               .apply = into(view_.match)});
    flags.add({.names = {"--full"}, .help = "arrays of the metadata in full", .apply = into(view_.full_arrays)});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    if (fit_) return show_fit(session.terminal);
    if (metadata_ != tensors_) {
      view_.metadata = metadata_;
      view_.tensors = tensors_;
    }
    DLLM_TRY(const ModelListing listing, list_model(words_.empty() ? path_ : words_.front()));
    session.terminal.out << (output_ == "json" ? dump(listing_json(listing, view_)) + "\n"
                                               : listing_text(listing, view_));
    return kExitOk;
  }

 private:
  Expected<ExitCode> show_fit(Terminal& terminal) const {
    const std::string path = words_.empty() ? path_ : words_.front();
    if (path.empty()) return Error{ErrorCode::kUsage, "the embedded model always fits", "--fit", "give a file"};
    DLLM_CHECK_OK(file_kind(path));
    const FitFacts facts =
        fit_facts(std::filesystem::path(path).filename().string(), model_bytes(path), /*measure=*/true);
    if (output_ == "json")
      terminal.out << dump(fit_json(facts)) << "\n";
    else
      terminal.out << fit_text(facts) << "\n";
    return kExitOk;
  }

  std::vector<std::string> words_;
  std::string path_, output_;
  bool metadata_ = false, tensors_ = false, fit_ = false;
  ListingView view_;
};

}  // namespace

std::unique_ptr<Verb> make_inspect() { return std::make_unique<Inspect>(); }

}  // namespace dllm::app
