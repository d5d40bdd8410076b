#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

#include "app/cli/options.h"
#include "app/cli/verb.h"
#include "app/key_file.h"
#include "app/serve_models.h"
#include "base/file_descriptor.h"
#include "base/try.h"
#include "hub/config.h"
#include "hub/pull.h"
#include "serve/server.h"

namespace dllm::app {
namespace {

class Serve final : public Verb {
 public:
  void declare(Flags& flags) override {
    declare_address(flags);
    declare_words(flags);
    declare_scheduling(flags);
    declare_limits(flags);
    several_.declare(flags);
    model_.add_template(flags);
    add_generate_flags(flags, server_.defaults);
    model_.add_loading(flags);
  }

  Expected<ExitCode> run(const Flags&, Session& session) override {
    Terminal& terminal = session.terminal;
    if (model_.listed(terminal)) return kExitOk;
    DLLM_CHECK_OK(read_keys(terminal));
    read_limits();
    // Where any web page may ask, a key must say that this user does.
    const bool pages = std::ranges::count(server_.origins, "*") > 0;
    if (is_private() && (!pages || !server_.keys.empty())) server_.pull = pull_model;
    DLLM_TRY(const bool several, several_.wanted(model_, server_));
    if (several) {
      warn_if_open(terminal);
      DLLM_CHECK_OK(several_.serve(model_, server_, session, write_log, announce(terminal)));
      return kExitOk;
    }
    DLLM_TRY(const LanguageModel model, model_.open(session));
    server_.model_path = model_.path;
    warn_if_open(terminal);
    DLLM_CHECK_OK(serve::serve(model, server_, write_log, announce(terminal)));
    return kExitOk;
  }

 private:
  /// Not through stdio, whose lock a thread that is blocked for ever would hold at the program's exit.
  static void write_log(std::string_view text) { write_all(STDERR_FILENO, text); }

  void read_limits() {
    server_.port = static_cast<std::uint16_t>(port_);
    server_.http.body = static_cast<std::size_t>(max_body_) << 10U;
    server_.http.header = static_cast<std::uint32_t>(max_header_) << 10U;
    server_.http.connections = static_cast<std::size_t>(max_connections_);
    server_.scheduling.prefix_bytes = std::int64_t{prefix_cache_} << 20U;
    server_.split_thoughts = reasoning_ != "none";
    server_.log = log_ == "json"   ? serve::LogForm::kJson
                  : log_ == "none" ? serve::LogForm::kNone
                                   : serve::LogForm::kText;
  }

  /// Whether only users of this machine, or those who have a key, reach the server.
  bool is_private() const {
    const bool loopback = server_.host == "localhost" || server_.host == "::1" || server_.host.starts_with("127.");
    return loopback || !server_.socket.empty() || !server_.keys.empty();
  }

  static Expected<void> pull_model(const std::string& name,
                                   const std::function<bool(std::string_view, std::uint64_t, std::uint64_t)>& tell) {
    hub::PullRequest request;
    DLLM_TRY(request.name, hub::parse_model_name(name));
    DLLM_TRY(const hub::Config config, hub::config_from(hub::process_environment));
    hub::PullListener listener;
    listener.progress = [&tell](const hub::PullProgress& now) { return tell(now.file, now.total, now.done); };
    DLLM_CHECK_OK(hub::pull(config, request, listener));
    return {};
  }

  void warn_if_open(Terminal& terminal) const {
    if (!is_private())
      terminal.err << "warning: everyone who reaches " << server_.host << " may use this server: give --api-key\n";
  }

  std::function<void(std::uint16_t)> announce(Terminal& terminal) const {
    return [this, &terminal](std::uint16_t port) {
      if (!server_.socket.empty()) {
        terminal.out << "listening on unix:" << server_.socket << "\n" << std::flush;
        return;
      }
      const bool ipv6 = server_.host.find(':') != std::string::npos;
      terminal.out << fmt::format("listening on http://{}{}{}:{}\n", ipv6 ? "[" : "", server_.host, ipv6 ? "]" : "",
                                  port)
                   << std::flush;
    };
  }

  void declare_address(Flags& flags) {
    flags.group("Server");
    flags.add({.names = {"--host"},
               .value = "ADDRESS",
               .help = "address to listen on",
               .default_text = server_.host,
               .apply = into(server_.host)});
    flags.add({.names = {"--port"},
               .value = "N",
               .help = "port to listen on; 0: any free port",
               .default_text = "8080",
               .apply = into(port_, 0, 65535)});
    flags.add({.names = {"--socket"},
               .value = "PATH",
               .help = "Unix socket to listen on instead of an address, for a proxy on this machine",
               .takes_path = true,
               .apply = into(server_.socket),
               .rare = true});
    flags.add({.names = {"--api-key"},
               .value = "KEY",
               .help = "API key that clients must send; may be repeated",
               .default_text = "none: no key required",
               .apply = into(server_.keys)});
    flags.add({.names = {"--api-key-file"},
               .value = "FILE",
               .help = "file of keys, one per line, and comments (#); unlike flags, other processes cannot see them",
               .takes_path = true,
               .apply = into(key_file_)});
    flags.add(
        {.names = {"--cors-origin"},
         .value = "ORIGIN",
         .help = "allow requests from web pages of this origin, e.g. http://localhost:3000; *: all; may be repeated",
         .apply = into(server_.origins),
         .rare = true});
    flags.add({.names = {"-a", "--alias"},
               .value = "NAME",
               .help = "name of the model in requests; may be repeated",
               .default_text = "the model's",
               .apply = into(server_.names),
               .rare = true});
    flags.add({.names = {"--any-model"},
               .help = "accept any model name in requests: for clients that insist on the name of another model",
               .apply = into(server_.any_model),
               .rare = true});
  }

  void declare_words(Flags& flags) {
    flags.add({.names = {"--reasoning-format"},
               .value = "NAME",
               .help = "auto, deepseek: thoughts are sent apart from the text, as reasoning_content and its kin; none: "
                       "in the text, as the model writes them",
               .default_text = "auto",
               .choices = {"auto", "deepseek", "none"},
               .apply = into(reasoning_, {"auto", "deepseek", "none"}),
               .rare = true});
    flags.add({.names = {"--log-format"},
               .value = "NAME",
               .help = "format of the line per request on stderr",
               .default_text = "text",
               .choices = {"text", "json", "none"},
               .apply = into(log_, {"text", "json", "none"}),
               .rare = true});
  }

  void declare_scheduling(Flags& flags) {
    flags.group("Limits");
    flags.add({.names = {"-np", "--parallel"},
               .value = "N",
               .help = "requests in one forward pass",
               .default_text = std::to_string(server_.scheduling.parallel),
               .apply = into(server_.scheduling.parallel, 1, 1024)});
    flags.add({.names = {"--queue"},
               .value = "N",
               .help = "requests that may wait; further ones get status 429",
               .default_text = std::to_string(server_.scheduling.queue),
               .apply = into(server_.scheduling.queue, 0, kMany)});
    flags.add({.names = {"--prefix-cache"},
               .value = "MIB",
               .help = "memory for K/V of earlier requests, from which later ones with the same first tokens start, if "
                       "the model allows it exactly; 0: none",
               .default_text = std::to_string(prefix_cache_),
               .apply = into(prefix_cache_, 0, 1 << 20)});
  }

  void declare_limits(Flags& flags) {
    constexpr const char* kContext = "what the context holds";
    flags.add({.names = {"--max-request-tokens"},
               .value = "N",
               .help = "tokens that one request may generate; a larger max_tokens is lowered to it",
               .default_text = kContext,
               .apply = into(server_.max_tokens, 1, 1 << 20, kContext),
               .rare = true});
    flags.add({.names = {"--request-timeout"},
               .value = "S",
               .help = "time limit of a request, including waiting, in seconds",
               .default_text = "600",
               .apply = into(server_.request_seconds, 0.1, 1e6),
               .rare = true});
    flags.add({.names = {"--drain-timeout"},
               .value = "S",
               .help = "seconds to finish running requests after SIGTERM or Ctrl-C",
               .default_text = "60",
               .apply = into(server_.drain_seconds, 0, 1e6),
               .rare = true});
    flags.add({.names = {"--max-body"},
               .value = "KIB",
               .help = "maximum size of a request body",
               .default_text = std::to_string(max_body_),
               .apply = into(max_body_, 1, 1 << 20),
               .rare = true});
    flags.add({.names = {"--max-header"},
               .value = "KIB",
               .help = "maximum size of a request header",
               .default_text = std::to_string(max_header_),
               .apply = into(max_header_, 1, 1 << 10),
               .rare = true});
    flags.add({.names = {"--max-connections"},
               .value = "N",
               .help = "open connections",
               .default_text = std::to_string(max_connections_),
               .apply = into(max_connections_, 1, kMany),
               .rare = true});
    flags.add({.names = {"--write-timeout"},
               .value = "S",
               .help = "seconds that a client may take to receive data",
               .default_text = "60",
               .apply = into(server_.http.write_seconds, 0.1, 1e6),
               .rare = true});
  }

  Expected<void> read_keys(Terminal& terminal) {
    if (!key_file_.empty()) {
      DLLM_TRY(KeyFile file, read_key_file(key_file_));
      for (const std::string& warning : file.warnings) terminal.err << "warning: " << warning << "\n";
      server_.keys.insert(server_.keys.end(), file.keys.begin(), file.keys.end());
    }
    for (const std::string& key : server_.keys)
      if (key.empty())
        return Error{ErrorCode::kUsage, "an empty key would open the server to everyone", "--api-key", ""};
    return {};
  }

  static constexpr std::int32_t kMany = 1 << 16;
  serve::ServerOptions server_;
  std::int32_t port_ = 8080, max_body_ = 4096, max_header_ = 16, max_connections_ = 512, prefix_cache_ = 1024;
  std::string key_file_, log_ = "text", reasoning_ = "auto";
  ModelFlags model_;
  SeveralModels several_;
};

}  // namespace

std::unique_ptr<Verb> make_serve() { return std::make_unique<Serve>(); }

}  // namespace dllm::app
