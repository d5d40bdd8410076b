#include <fmt/format.h>

#include <bit>
#include <ostream>
#include <span>

#include "app/cli/model_file.h"
#include "app/cli/options.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "base/try.h"

namespace dllm::app {
namespace {

static_assert(std::endian::native == std::endian::little, "the output is little endian");

class Logits final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Input");
    flags.add({.names = {"--tokens"}, .value = "IDS", .help = "token ids: 1,2,3", .apply = into(tokens_)});
    flags.add({.names = {"--causal"}, .help = "with a causal mask instead of the model's", .apply = into(causal_)});
    flags.add({.names = {"--canvas"},
               .value = "N",
               .help = "for models that refine canvases: the last N tokens are the canvas, the others the prompt",
               .default_text = "0",
               .apply = into(canvas_, 0, 1 << 20)});
    flags.group("Output");
    flags.add({.names = {"-o", "--outfile", "--output"},
               .value = "FILE",
               .help = "raw little-endian float32, [tokens x vocabulary]; - is standard output",
               .takes_path = true,
               .written = true,
               .apply = into(output_)});
    model_.add_loading(flags);
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    Terminal& terminal = session.terminal;
    if (model_.listed(terminal)) return kExitOk;
    for (const char* name : {"--tokens", "--output"})
      if (!flags.given(name)) return Error{ErrorCode::kUsage, "is missing", name, "see dllm logits --help"};
    if (output_ == "-" && session.results_tty)
      return Error{ErrorCode::kUsage, "binary data would go to the terminal", "--output", "give a file or a pipe"};
    DLLM_TRY(const auto ids, parse_ids(tokens_, "--tokens"));
    DLLM_TRY(const LanguageModel model, model_.open(session));
    DLLM_TRY(const std::vector<float> logits, model.logits(ids, causal_, canvas_));
    const auto bytes = std::as_bytes(std::span(logits));
    DLLM_CHECK_OK(write_result(session, output_, bytes));
    terminal.err << fmt::format("{} x {} float32\n", ids.size(), model.vocab_size());
    return kExitOk;
  }

 private:
  std::string tokens_, output_;
  bool causal_ = false;
  std::int32_t canvas_ = 0;
  ModelFlags model_;
};

}  // namespace

std::unique_ptr<Verb> make_logits() { return std::make_unique<Logits>(); }

}  // namespace dllm::app
