#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/model_file.h"
#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "base/try.h"

namespace dllm::app {
namespace {

/// Common to tokenize and detokenize.
class TokenizerVerb : public Verb {
 protected:
  void add_shared(Flags& flags) {
    flags.group("Model");
    flags.add({.names = {"-m", "--model"},
               .value = "PATH",
               .help = "GGUF file, Hugging Face directory or tokenizer.json",
               .default_text = "the embedded tiny-llada",
               .takes_path = true,
               .apply = into(path_)});
    flags.group("Output");
    add_output_flag(flags, output_, {"text", "json"});
  }

  std::string path_, output_;
};

class Tokenize final : public TokenizerVerb {
 public:
  void declare(Flags& flags) override {
    text_.add(flags, "TEXT");
    flags.add(
        {.names = {"--no-special"}, .help = "texts of control tokens remain plain text", .apply = into(no_special_)});
    flags.add({.names = {"--add-bos"},
               .help = "prepend the beginning-of-sequence token, if the model uses one",
               .apply = into(add_bos_)});
    add_shared(flags);
    flags.add({.names = {"--show"}, .help = "a table of ids and their texts", .apply = into(show_)});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    DLLM_TRY(const std::string text, text_.read(flags, session.terminal));
    DLLM_TRY(const Tokenizer tokenizer, open_tokenizer(path_));
    std::vector<TokenId> ids = tokenizer.encode(text, !no_special_);
    const TokenizerSpec& spec = tokenizer.spec();
    if (add_bos_ && spec.add_bos && spec.bos) ids.insert(ids.begin(), *spec.bos);
    std::ostream& out = session.terminal.out;
    if (output_ == "json") {
      nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
      for (TokenId id : ids) tokens.push_back(std::string(tokenizer.bytes(id)));
      out << dump({{"text", text}, {"ids", ids}, {"tokens", tokens}}) << "\n";
    } else if (show_) {
      for (TokenId id : ids) out << fmt::format("{:>7}  {}\n", id, visible(tokenizer.bytes(id)));
    } else {
      out << fmt::format("{}\n", fmt::join(ids, " "));
    }
    return kExitOk;
  }

 private:
  /// In quotes, so that spaces are visible; one line per token.
  static std::string visible(std::string_view bytes) {
    std::string result = "'";
    for (char c : sanitize(bytes)) result += c == '\n' ? std::string("\\n") : c == '\t' ? "\\t" : std::string(1, c);
    return result + "'";
  }

  TextFlags text_;
  bool no_special_ = false, add_bos_ = false, show_ = false;
};

class Detokenize final : public TokenizerVerb {
 public:
  void declare(Flags& flags) override {
    flags.group("Input");
    flags.positionals("[ID...]", "token ids, separated by spaces or commas; standard input when none is given", 1 << 20,
                      words_);
    add_shared(flags);
    flags.add({.names = {"--no-special"}, .help = "leave control tokens out", .apply = into(no_special_)});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    std::string text;
    const bool from_stdin = words_.empty() || (words_.size() == 1 && words_.front() == "-");
    if (from_stdin && words_.empty() && session.terminal.in_tty)
      return Error{ErrorCode::kUsage, "there are no token ids", "dllm " + flags.verb(), "see dllm detokenize --help"};
    if (from_stdin) {
      DLLM_TRY(text, read_text("-", session.terminal));
    } else {
      for (const std::string& word : words_) text += word + " ";
    }
    DLLM_TRY(const auto ids, parse_ids(text, from_stdin ? "standard input" : "dllm detokenize"));
    DLLM_TRY(const Tokenizer tokenizer, open_tokenizer(path_));
    for (TokenId id : ids)
      if (id < 0 || id >= tokenizer.vocab_size())
        return Error{ErrorCode::kUsage,
                     fmt::format("token id {} is outside the vocabulary of {}", id, tokenizer.vocab_size()), "", ""};
    const std::string decoded = tokenizer.decode(ids, !no_special_);
    std::ostream& out = session.terminal.out;
    if (output_ == "json")
      out << dump({{"ids", ids}, {"text", decoded}}) << "\n";
    else
      out << (session.terminal.out_tty ? sanitize(decoded) : decoded) << "\n";
    return kExitOk;
  }

 private:
  std::vector<std::string> words_;
  bool no_special_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_tokenize() { return std::make_unique<Tokenize>(); }
std::unique_ptr<Verb> make_detokenize() { return std::make_unique<Detokenize>(); }

}  // namespace dllm::app
