#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <utility>

#include "app/cli/model_file.h"
#include "app/cli/verb.h"
#include "base/cache_directory.h"
#include "base/try.h"
#include "engine/backend/ranks.h"
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
               .default_text = "the first rank sends this one's part, which is kept for the next time",
               .takes_path = true,
               .apply = into(path_)});
    flags.add({.names = {"--cache"},
               .value = "DIR",
               .help = "where weights that the first rank sends are kept, if there is a --key-file",
               .default_text = "dllm/ranks in the cache of the user",
               .takes_path = true,
               .apply = into(worker_.cache)});
    flags.add({.names = {"--cache-size"},
               .value = "GB",
               .help = "size of that folder; what was not used for the longest time makes room",
               .default_text = fmt::format("{:g}", cache_gb_),
               .apply = into(cache_gb_, 0, 1e6)});
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
    std::shared_ptr<const Model> model;
    if (!path_.empty()) {
      DLLM_TRY(model, Model::load(path_));
      worker_.model_path = path_;
    }
    if (worker_.cache.empty() && !cache_directory().empty()) worker_.cache = cache_directory() + "/ranks";
    worker_.cache_bytes = static_cast<std::uint64_t>(cache_gb_ * 1e9);
    worker_.ready = [&session](int port) { session.terminal.out << "listening on port " << port << std::endl; };
    worker_.tell = [&session](const std::string& text) { session.terminal.out << text << std::endl; };
    DLLM_CHECK_OK(run_rank_worker(std::move(model), worker_, Log()));
    return kExitOk;
  }

 private:
  RankWorker worker_;
  std::string path_;
  double cache_gb_ = 64;
};

}  // namespace

std::unique_ptr<Verb> make_worker() { return std::make_unique<WorkerVerb>(); }

}  // namespace dllm::app
