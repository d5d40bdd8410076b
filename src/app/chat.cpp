#include <fmt/format.h>

#include <fstream>
#include <ostream>

#include "app/line_reader.h"
#include "app/live.h"
#include "app/options.h"
#include "app/report.h"
#include "app/verb.h"
#include "base/try.h"

namespace dllm::app {
namespace {

constexpr std::string_view kHelp =
    "/clear           forget the conversation\n"
    "/system TEXT     set the system message; without TEXT: remove it\n"
    "/save FILE       write the conversation as JSON\n"
    "/stats           figures of the last answer and of the session\n"
    "/help            this text\n"
    "/quit, /bye      leave; so does Ctrl-D\n"
    "\"\"\"              begins and ends a message of several lines; Ctrl-C stops an answer\n";

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// What was said, and what it cost.
class Conversation {
 public:
  Conversation(const LanguageModel& model, const GenerateOptions& options, const LiveFlags& live, Session& session)
      : model_(model), options_(options), live_(live), session_(session) {}

  void set_system(std::string text) { system_ = std::move(text); }
  void clear() { turns_.clear(); }

  /// On failure the conversation stays as it was before the message.
  Expected<void> say(const std::string& message) {
    turns_.push_back({"user", message});
    LiveAnswer live(session_.terminal, model_, live_, /*print=*/true);
    const std::stop_token stop = session_.interrupt.arm();
    auto answer = model_.generate(with_system(), options_, live.callback(), stop);
    session_.interrupt.disarm();
    if (!answer) {
      turns_.pop_back();
      return std::move(answer).error();
    }
    live.finish(*answer);
    turns_.push_back({"assistant", answer->text});
    total_.nfe += answer->stats.nfe;
    total_.steps += answer->stats.steps;
    total_.answer_tokens += answer->stats.answer_tokens;
    total_.committed_tokens += answer->stats.committed_tokens;
    total_.seconds += answer->stats.seconds;
    last_ = std::move(*answer);
    if (last_.finish == FinishReason::kCancelled) session_.terminal.err << "(stopped)\n";
    return {};
  }

  std::string stats() const {
    if (total_.steps == 0) return "no answer yet\n";
    return fmt::format("last:    {}\nsession: {} turns, {} tokens, NFE {}, {:.1f} s, {:.1f} tok/s\n",
                       stats_line(last_, options_.seed), turns_.size(), total_.answer_tokens, total_.nfe,
                       total_.seconds, total_.seconds > 0 ? total_.answer_tokens / total_.seconds : 0);
  }

  Expected<void> save(const std::string& path, const nlohmann::ordered_json& config) const {
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    for (const ChatTurn& turn : with_system()) messages.push_back({{"role", turn.role}, {"content", turn.content}});
    std::ofstream file(path, std::ios::binary);
    file << dump({{"messages", messages}, {"config", config}}) << "\n";
    file.flush();
    if (!file) return Error{ErrorCode::kIo, "cannot be written", path, ""};
    return {};
  }

 private:
  std::vector<ChatTurn> with_system() const {
    std::vector<ChatTurn> all;
    if (!system_.empty()) all.push_back({"system", system_});
    all.insert(all.end(), turns_.begin(), turns_.end());
    return all;
  }

  const LanguageModel& model_;
  const GenerateOptions& options_;
  const LiveFlags& live_;
  Session& session_;
  std::string system_;
  std::vector<ChatTurn> turns_;
  Generation last_;
  GenerateStats total_;
};

class Chat final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Input");
    flags.add(
        {.names = {"--system-prompt", "-sys"}, .value = "TEXT", .help = "system message", .apply = into(system_)});
    model_.add_template(flags);
    add_generate_flags(flags, options_);
    model_.add_loading(flags);
    live_.add(flags);
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    if (model_.list_isas(session.terminal)) return kExitOk;
    finish_generate_options(flags, options_);
    DLLM_TRY(const LanguageModel model, model_.open(session.terminal));
    Conversation conversation(model, options_, live_, session);
    conversation.set_system(system_);
    LineReader reader(session.terminal, session.interrupt);
    std::ostream& err = session.terminal.err;
    if (session.terminal.in_tty)
      err << fmt::format("{} ({}). /help for commands, Ctrl-D to leave.\n", model.name(), model.architecture());
    ExitCode code = kExitOk;
    for (std::string message; read_message(reader, message);) {
      if (message.empty()) continue;
      Expected<bool> proceed =
          message.front() == '/' ? command(message, conversation, model, session) : said(conversation.say(message));
      if (!proceed) {
        err << "error: " << sanitize(proceed.error().message()) << "\n";
        code = exit_code(proceed.error().code);
      }
      if (proceed && !*proceed) break;
    }
    // A person has seen the error; a script looks at the exit code.
    return session.terminal.in_tty ? kExitOk : code;
  }

 private:
  static Expected<bool> said(Expected<void> result) {
    if (result) return true;
    Error error = std::move(result).error();
    if (error.code == ErrorCode::kUsage && error.hint.find("--predict") != std::string::npos)
      error.hint = "the conversation is kept; /clear begins a new one";
    return error;
  }

  /// False at the end of the input.
  static bool read_message(LineReader& reader, std::string& message) {
    std::string line;
    const auto status = reader.read("> ", line);
    if (status == LineReader::Status::kEnd) return false;
    message.clear();
    if (status == LineReader::Status::kInterrupted) return true;
    if (!trim(line).starts_with("\"\"\"")) {
      message = trim(line);
      return true;
    }
    line = trim(line).substr(3);
    for (;;) {
      if (const auto end = line.find("\"\"\""); end != std::string::npos) {
        message += line.substr(0, end);
        // The newline in front of closing quotes on a line of their own is layout.
        if (end == 0 && !message.empty()) message.pop_back();
        return true;
      }
      message += line;
      if (!message.empty()) message += '\n';
      const auto next = reader.read("... ", line);
      if (next == LineReader::Status::kInterrupted) message.clear();
      if (next != LineReader::Status::kLine) return next == LineReader::Status::kInterrupted || !message.empty();
    }
  }

  /// False: leave.
  Expected<bool> command(std::string_view text, Conversation& conversation, const LanguageModel& model,
                         Session& session) const {
    const auto space = text.find_first_of(" \t");
    const std::string_view name = text.substr(0, space);
    const std::string rest(space == std::string_view::npos ? "" : trim(text.substr(space)));
    std::ostream& err = session.terminal.err;
    if (name == "/quit" || name == "/bye" || name == "/exit") return false;
    if (name == "/help" || name == "/?") {
      err << kHelp;
    } else if (name == "/clear") {
      conversation.clear();
      err << "(the conversation is forgotten)\n";
    } else if (name == "/system") {
      conversation.set_system(rest);
    } else if (name == "/stats") {
      err << conversation.stats();
    } else if (name == "/save") {
      if (rest.empty()) return Error{ErrorCode::kUsage, "a file name is missing", "/save", ""};
      DLLM_CHECK_OK(conversation.save(rest, run_config(model, model_, options_, session.command)));
      err << "(saved to " << sanitize(rest) << ")\n";
    } else {
      const std::vector<std::string> known = {"/clear", "/system", "/save", "/stats", "/help", "/quit", "/bye"};
      return Error{ErrorCode::kUsage, "unknown command", std::string(name), choice_hint(name, known)};
    }
    return true;
  }

  std::string system_;
  ModelFlags model_;
  GenerateOptions options_;
  LiveFlags live_;
};

}  // namespace

std::unique_ptr<Verb> make_chat() { return std::make_unique<Chat>(); }

}  // namespace dllm::app
