#include <ostream>

#include "app/cli/model_file.h"
#include "app/cli/verb.h"
#include "base/try.h"
#include "engine/backend/ranks.h"
#include "engine/load.h"
#include "model/model.h"

namespace dllm::app {
namespace {

class WorkerVerb final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Ranks");
    flags.add({.names = {"--listen"},
               .value = "HOST:PORT",
               .help = "where the first rank connects to; port 0 takes any, which is printed",
               .default_text = "127.0.0.1:0",
               .apply = into(worker_.listen)});
    flags.add({.names = {"--key-file"},
               .value = "FILE",
               .help = "a file with the secret line that the first rank has too",
               .default_text = "none, for ranks on this machine only",
               .takes_path = true,
               .apply = into(worker_.key_file)});
    flags.add(
        {.names = {"--stay"}, .help = "wait for the next first rank when one has left", .apply = into(worker_.stay)});
    flags.group("Model");
    flags.add({.names = {"-m", "--model"},
               .value = "FILE",
               .help = "the model that the first rank has too",
               .default_text = "the embedded tiny-llada",
               .takes_path = true,
               .apply = into(path_)});
    flags.add({.names = {"-t", "--threads"},
               .value = "N",
               .help = "threads of this rank",
               .default_text = "every CPU",
               .apply = into(worker_.threads, 0, 1024)});
    flags.add({.names = {"--isa"},
               .value = "NAME",
               .help = "kernel set of this rank; all have the same bits",
               .default_text = "the best one here",
               .apply = into(worker_.isa)});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    if (worker_.listen.empty()) worker_.listen = "127.0.0.1:0";
    DLLM_TRY(auto source, open_or_embedded(path_));
    DLLM_TRY(const std::shared_ptr<const Model> model, Model::load(std::move(source)));
    worker_.ready = [&session](int port) { session.terminal.out << "listening on port " << port << std::endl; };
    DLLM_CHECK_OK(run_rank_worker(*model, worker_, Log()));
    return kExitOk;
  }

 private:
  RankWorker worker_;
  std::string path_;
};

}  // namespace

std::unique_ptr<Verb> make_worker() { return std::make_unique<WorkerVerb>(); }

}  // namespace dllm::app
