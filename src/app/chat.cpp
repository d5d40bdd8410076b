#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "app/cli/line_reader.h"
#include "app/cli/live.h"
#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "base/output_file.h"
#include "base/try.h"

namespace dllm::app {
namespace {

constexpr std::string_view kHelp =
    "/clear           forget the conversation\n"
    "/retry           another answer to the last message, with the next seed\n"
    "/set KEY VALUE   change an option, named as its flag: /set temp 0.7; without more: what was changed\n"
    "/system TEXT     set the system message; without TEXT: remove it\n"
    "/image FILE      add an image to the next message\n"
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

bool is_too_long(const Error& error) {
  return error.code == ErrorCode::kUsage && error.hint.find("shorten the prompt") != std::string::npos;
}

/// Without a tower no message with an image could be answered.
Expected<void> check_reads_images(const LanguageModel& model, const char* where) {
  if (model.reads_images()) return {};
  return Error{ErrorCode::kUsage, "the model was loaded without a vision tower", where,
               "name its tower with --mmproj, if it has one"};
}

/// The conversation so far, and its cost.
class Conversation {
 public:
  Conversation(const LanguageModel& model, GenerateOptions& options, const LiveFlags& live, Session& session)
      : model_(model), options_(options), live_(live), session_(session) {}

  void set_system(std::string text) { system_ = std::move(text); }
  /// They stand before the next message.
  void add_images(std::vector<std::string> files) {
    for (std::string& file : files) images_.push_back(std::move(file));
  }
  void clear() {
    turns_.clear();
    images_.clear();
    first_ = 0;
  }

  /// On failure the conversation is unchanged, but for the images of the message: with one that cannot be read, every
  /// further message would fail.
  Expected<void> say(const std::string& message) {
    auto said = ask(message);
    if (!said && !std::exchange(images_, {}).empty()) session_.terminal.err << "(the images are dropped)\n";
    return said;
  }

  /// On failure the conversation is unchanged.
  Expected<void> ask(const std::string& message) {
    const std::size_t first = first_;
    turns_.push_back({"user", message, images_});
    if (auto fits = forget_what_does_not_fit(); !fits) return unsaid(first, std::move(fits).error());
    LiveAnswer live(session_.terminal, model_, live_, AnswerForm::kText);
    const std::stop_token stop = session_.interrupt.arm();
    auto answer = model_.generate(seen(), options_, live.callback(), stop);
    session_.interrupt.disarm();
    if (!answer) return unsaid(first, std::move(answer).error());
    live.finish(*answer);
    std::ostream& err = session_.terminal.err;
    if (first_ > first)
      err << fmt::format("(the context is full: the first {} turns are forgotten, {} are not)\n", first_,
                         turns_.size() - first_);
    turns_.push_back({"assistant", answer->text});
    images_.clear();
    total_.nfe += answer->stats.nfe;
    total_.steps += answer->stats.steps;
    total_.answer_tokens += answer->stats.answer_tokens;
    total_.committed_tokens += answer->stats.committed_tokens;
    total_.seconds += answer->stats.seconds;
    last_ = std::move(*answer);
    if (last_.finish == FinishReason::kCancelled) {
      err << "(stopped)\n";
    } else if (const std::string note = empty_answer_note(last_); !note.empty()) {
      err << "(" << note << ")\n";
    }
    err << stats_line(last_) << "\n";
    return {};
  }

  /// Answers the last message again, with the next seed.
  Expected<void> retry() {
    if (turns_.empty()) return Error{ErrorCode::kUsage, "there is no message to answer again", "/retry", ""};
    const std::vector<ChatTurn> before = turns_;
    const std::string message = turns_[turns_.size() - 2].content;
    const std::vector<std::string> pending = std::exchange(images_, turns_[turns_.size() - 2].images);
    turns_.resize(turns_.size() - 2);
    first_ = std::min(first_, turns_.size());
    options_.seed = options_.seed.value_or(0) + 1;
    auto said = ask(message);
    images_ = pending;
    if (!said) {
      turns_ = before;
      return said;
    }
    if (turns_.back().content == before.back().content)
      session_.terminal.err << "(the same answer: greedy decoding draws nothing; try /set temp 0.7)\n";
    return {};
  }

  /// `text`: "KEY VALUE", or nothing.
  Expected<void> set(const std::string& text) {
    const auto space = text.find_first_of(" \t");
    std::string key = text.substr(0, space);
    if (key.empty()) {
      for (const auto& [name, value] : changed_) session_.terminal.err << fmt::format("{} {}\n", name, value);
      if (changed_.empty()) session_.terminal.err << "(nothing was changed; dllm chat --help shows the options)\n";
      return {};
    }
    const std::string value(space == std::string::npos ? "" : trim(std::string_view(text).substr(space)));
    if (value.empty()) return Error{ErrorCode::kUsage, "a value is missing", "/set " + key, "/set KEY VALUE"};
    GenerateOptions options = options_;
    if (key == "stop" || key == "--stop")
      options.stop = {value};
    else if (auto set = options.set(key, value); !set && !key.starts_with('-'))
      DLLM_CHECK_OK(options.set("--" + key, value));
    else if (!set)
      return set;
    const auto resolved = model_.resolve(options);
    if (!resolved) return resolved.error();
    options_ = std::move(options);
    changed_[key] = value;
    return {};
  }

  std::string stats() const {
    if (total_.steps == 0) return "no answer yet\n";
    return fmt::format("last:    {}\nsession: {} turns, {} tokens, NFE {}, {:.1f} s, {:.1f} tok/s\n", stats_line(last_),
                       turns_.size(), total_.answer_tokens, total_.nfe, total_.seconds,
                       total_.seconds > 0 ? total_.answer_tokens / total_.seconds : 0);
  }

  Expected<void> save(const std::string& path, const nlohmann::ordered_json& config) const {
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    for (const ChatTurn& turn : with_system(0)) messages.push_back({{"role", turn.role}, {"content", turn.content}});
    return write_file(path, dump({{"messages", messages}, {"config", config}}) + "\n");
  }

 private:
  /// Takes the last message back.
  Error unsaid(std::size_t first, Error error) {
    turns_.pop_back();
    first_ = first;
    return error;
  }
  std::vector<ChatTurn> with_system(std::size_t first) const {
    std::vector<ChatTurn> all;
    if (!system_.empty()) all.push_back({"system", system_});
    all.insert(all.end(), turns_.begin() + static_cast<std::ptrdiff_t>(first), turns_.end());
    return all;
  }
  /// The part of the conversation that the model sees.
  std::vector<ChatTurn> seen() const { return with_system(first_); }

  /// Drops the oldest exchanges until prompt and canvas fit into the context. The last message always stays: if it
  /// alone is too long, the model reports the error.
  Expected<void> forget_what_does_not_fit() {
    DLLM_TRY(const ResolvedOptions resolved, model_.resolve(options_));
    // The model's own canvas shrinks before half of the context is given up for it.
    const std::int32_t canvas = resolved.own_length ? std::min(resolved.length, resolved.context / 2) : resolved.length;
    for (; first_ + 2 < turns_.size(); first_ += 2) {
      const auto ids = model_.apply_template(seen());
      if (!ids && !is_too_long(ids.error())) return ids.error();
      if (ids && static_cast<std::int64_t>(ids->size()) + canvas <= resolved.context) break;
    }
    return {};
  }

  const LanguageModel& model_;
  GenerateOptions& options_;
  const LiveFlags& live_;
  Session& session_;
  std::string system_;
  std::vector<ChatTurn> turns_;
  std::vector<std::string> images_;  ///< of the next message
  std::size_t first_ = 0;            ///< earlier turns are not sent to the model; /save still has them
  std::map<std::string, std::string> changed_;
  Generation last_;
  GenerateStats total_;
};

class Chat final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Input");
    flags.add(
        {.names = {"--system-prompt", "-sys"}, .value = "TEXT", .help = "system message", .apply = into(system_)});
    add_image_flag(flags, images_);
    model_.add_template(flags);
    add_generate_flags(flags, options_);
    model_.add_loading(flags);
    live_.add(flags);
  }

  Expected<ExitCode> run(const Flags&, Session& session) override {
    if (model_.listed(session.terminal)) return kExitOk;
    DLLM_TRY(const LanguageModel model, model_.open(session));
    Conversation conversation(model, options_, live_, session);
    conversation.set_system(system_);
    if (!images_.empty()) DLLM_CHECK_OK(check_reads_images(model, "--image"));
    DLLM_TRY(std::vector<std::string> images, read_images(images_));
    conversation.add_images(std::move(images));
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
    // Closed, or a directory: not the end of a conversation.
    if (&session.terminal.in == &std::cin && !session.terminal.in_tty && std::ferror(stdin) != 0)
      return Error{ErrorCode::kIo, "cannot be read", "standard input", "is it closed?"};
    // A person has seen the error; a script checks the exit code.
    return session.terminal.in_tty ? kExitOk : code;
  }

 private:
  static Expected<bool> said(Expected<void> result) {
    if (result) return true;
    Error error = std::move(result).error();
    if (is_too_long(error)) error.hint = "the conversation is kept; /clear begins a new one";
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
        // The newline before closing quotes on their own line is layout.
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

  /// Returns false to leave.
  Expected<bool> command(std::string_view text, Conversation& conversation, const LanguageModel& model,
                         Session& session) {
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
    } else if (name == "/retry") {
      DLLM_CHECK_OK(conversation.retry());
    } else if (name == "/set") {
      DLLM_CHECK_OK(conversation.set(rest));
    } else if (name == "/system") {
      conversation.set_system(rest);
    } else if (name == "/image") {
      if (rest.empty()) return Error{ErrorCode::kUsage, "a file name is missing", "/image", ""};
      DLLM_CHECK_OK(check_reads_images(model, "/image"));
      DLLM_TRY(std::vector<std::string> images, read_images({rest}));
      conversation.add_images(std::move(images));
      err << "(the next message has this image)\n";
    } else if (name == "/stats") {
      err << conversation.stats();
    } else if (name == "/save") {
      if (rest.empty()) return Error{ErrorCode::kUsage, "a file name is missing", "/save", ""};
      DLLM_TRY(const ResolvedOptions resolved, model.resolve(options_));
      DLLM_CHECK_OK(conversation.save(rest, run_config(model, model_, resolved, session.command)));
      err << "(saved to " << sanitize(rest) << ")\n";
    } else {
      const std::vector<std::string> known = {"/clear", "/retry", "/set",  "/system", "/image",
                                              "/save",  "/stats", "/help", "/quit",   "/bye"};
      return Error{ErrorCode::kUsage, "unknown command", std::string(name), choice_hint(name, known)};
    }
    return true;
  }

  std::string system_;
  std::vector<std::string> images_;
  ModelFlags model_;
  GenerateOptions options_;
  LiveFlags live_;
};

}  // namespace

std::unique_ptr<Verb> make_chat() { return std::make_unique<Chat>(); }

}  // namespace dllm::app
