// dllm options: the methods of this build and their options.
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/options.h"
#include "app/cli/options_help.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "base/try.h"

namespace dllm::app {
namespace {

class Options final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.positionals("[NAME]", "a decoder, window, cache or preset; default: list all, one per line", 1, words_);
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "json"});
    flags.add({.names = {"--schema"},
               .help = "the same as -o json: a JSON Schema of every option of a generation",
               .apply = into(schema_)});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    std::ostream& out = session.terminal.out;
    if (schema_ || output_ == "json") {
      if (!words_.empty())
        return Error{ErrorCode::kUsage, "the schema is that of all methods", words_.front(), "leave the name out"};
      out << dump(options_schema()) << "\n";
    } else if (words_.empty()) {
      out << methods_text();
    } else {
      DLLM_TRY(const std::string text, method_text(words_.front()));
      out << text;
    }
    return kExitOk;
  }

 private:
  std::vector<std::string> words_;
  std::string output_;
  bool schema_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_options() { return std::make_unique<Options>(); }

}  // namespace dllm::app
