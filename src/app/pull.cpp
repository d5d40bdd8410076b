#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/hub_flags.h"
#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "base/human_bytes.h"
#include "base/try.h"

namespace dllm::app {
namespace {

class Pull final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Hub");
    flags.positionals("ORG/MODEL[:TYPE]", "a model of the hub at HF_ENDPOINT; TYPE chooses a GGUF file, as in :Q4_K_M",
                      1, words_);
    hub_.add(flags);
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "json"});
  }

  Expected<ExitCode> run(const Flags&, Session& session) override {
    if (words_.empty()) return Error{ErrorCode::kUsage, "no model is named", "dllm pull", "dllm pull ORG/MODEL[:TYPE]"};
    hub_.name = words_.front();
    DLLM_TRY(const hub::Pulled pulled, hub_.pull(session));
    if (output_ == "json") {
      session.terminal.out << dump({{"path", pulled.path},
                                    {"commit", pulled.commit},
                                    {"bytes", pulled.bytes},
                                    {"fetched", pulled.fetched},
                                    {"offline", !pulled.asked}})
                           << "\n";
      return kExitOk;
    }
    session.terminal.err << fmt::format("{}: {}, {} of them fetched now\n", hub_.name,
                                        human_bytes(static_cast<double>(pulled.bytes)),
                                        human_bytes(static_cast<double>(pulled.fetched)));
    session.terminal.out << pulled.path << "\n";
    return kExitOk;
  }

 private:
  std::vector<std::string> words_;
  std::string output_;
  HubFlags hub_;
};

}  // namespace

std::unique_ptr<Verb> make_pull() { return std::make_unique<Pull>(); }

}  // namespace dllm::app
