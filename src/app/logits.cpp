#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>

#include "app/model_file.h"
#include "app/options.h"
#include "app/verb.h"
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
    flags.group("Output");
    flags.add({.names = {"-o", "--outfile", "--output"},
               .value = "FILE",
               .help = "raw little-endian float32, [tokens x vocabulary]; - is standard output",
               .takes_path = true,
               .apply = into(output_)});
    model_.add_loading(flags);
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    Terminal& terminal = session.terminal;
    if (model_.list_isas(terminal)) return kExitOk;
    for (const char* name : {"--tokens", "--output"})
      if (!flags.given(name)) return Error{ErrorCode::kUsage, "is missing", name, "see dllm logits --help"};
    if (output_ == "-" && terminal.out_tty)
      return Error{ErrorCode::kUsage, "binary data would go to the terminal", "--output", "give a file or a pipe"};
    DLLM_TRY(const auto ids, parse_ids(tokens_, "--tokens"));
    DLLM_TRY(const LanguageModel model, model_.open(terminal));
    DLLM_TRY(const std::vector<float> logits, model.logits(ids, causal_));
    const auto* bytes = reinterpret_cast<const char*>(logits.data());
    const auto size = static_cast<std::streamsize>(logits.size() * sizeof(float));
    if (output_ == "-") {
      terminal.out.write(bytes, size);
    } else {
      DLLM_CHECK_OK(write_file(bytes, size));
    }
    terminal.err << fmt::format("{} x {} float32\n", ids.size(), model.vocab_size());
    return kExitOk;
  }

 private:
  /// Complete or not at all.
  Expected<void> write_file(const char* bytes, std::streamsize size) const {
    std::error_code failure;
    // A device or a pipe cannot be replaced by a rename.
    const auto status = std::filesystem::status(output_, failure);
    const bool direct = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
    const std::string path = direct ? output_ : output_ + ".part";
    errno = 0;
    std::ofstream file(path, std::ios::binary);
    file.write(bytes, size);
    file.close();
    const Error error{ErrorCode::kIo, errno != 0 ? std::strerror(errno) : "cannot be written", output_, ""};
    failure.clear();
    if (file && !direct) std::filesystem::rename(path, output_, failure);
    if (file && !failure) return {};
    if (!direct) std::filesystem::remove(path, failure);
    return error;
  }

  std::string tokens_, output_;
  bool causal_ = false;
  ModelFlags model_;
};

}  // namespace

std::unique_ptr<Verb> make_logits() { return std::make_unique<Logits>(); }

}  // namespace dllm::app
