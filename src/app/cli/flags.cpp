#include "app/cli/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "app/cli/llama_flags.h"
#include "base/try.h"

namespace dllm::app {
namespace {

bool is_long(std::string_view name) { return name.starts_with("--"); }

/// "-sys": one dash, several letters. CLI11 would parse it as -s with the value "ys".
bool is_wide_short(std::string_view name) { return name.size() > 2 && name[0] == '-' && name[1] != '-'; }

std::string cli11_name(const std::string& name) { return is_wide_short(name) ? "-" + name : name; }

/// Of a switch as it was written, with "true" or "false" behind it.
Error detached_value(const Flag& flag, const std::string& written, const std::string& value) {
  const std::string& name = flag.long_name();
  return {
      ErrorCode::kUsage, "the value of a switch is no word of its own", written + " " + value,
      fmt::format("give {}, or -- before a prompt that begins so", value == "false" ? "--no-" + name.substr(2) : name)};
}

}  // namespace

const std::string& Flag::long_name() const {
  const auto found = std::find_if(names.begin(), names.end(), is_long);
  return found == names.end() ? names.front() : *found;
}

namespace {

std::string environment_name_of(std::string_view long_flag) {
  std::string result = "DLLM_ARG_";
  for (char c : long_flag.substr(2))
    result += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

std::string Flag::environment_name() const { return environment_name_of(long_name()); }

std::vector<std::string> Flag::environment_names() const {
  std::vector<std::string> result = {environment_name()};
  for (const std::string& name : names)
    if (name.starts_with("--") && name != long_name()) result.push_back(environment_name_of(name));
  return result;
}

Flags::Flags(std::string verb, std::string arguments, std::string summary)
    : verb_(std::move(verb)), arguments_(std::move(arguments)), summary_(std::move(summary)) {}

void Flags::add(Flag flag) {
  flag.group = group_;
  flags_.push_back(std::move(flag));
}

void Flags::free_name(std::string_view name) {
  for (Flag& flag : flags_) std::erase(flag.names, name);
}

void Flags::positionals(std::string name, std::string help, std::size_t maximum, std::vector<std::string>& target) {
  positional_name_ = std::move(name);
  positional_help_ = std::move(help);
  positional_maximum_ = maximum;
  positional_target_ = &target;
}

const Flag* Flags::find(std::string_view name) const {
  for (const Flag& flag : flags_)
    if (std::find(flag.names.begin(), flag.names.end(), name) != flag.names.end()) return &flag;
  return nullptr;
}

bool Flags::given(std::string_view name) const {
  const Flag* flag = find(name);
  return flag != nullptr && !given_.empty() && given_[static_cast<std::size_t>(flag - flags_.data())] != 0;
}

std::vector<std::string> Flags::paths(bool written) const {
  std::vector<std::string> result;
  for (const auto& [index, value] : values_)
    if (flags_[index].takes_path && flags_[index].written == written) result.push_back(value);
  return result;
}

std::string Flags::without_no(const std::string& argument) const {
  constexpr std::string_view kNo = "--no-";
  if (!argument.starts_with(kNo) || find(argument) != nullptr) return argument;
  const std::string name = "--" + argument.substr(kNo.size());
  const Flag* flag = find(name);
  return flag != nullptr && flag->value.empty() ? name + "=false" : argument;
}

Flags::SplitArguments Flags::split(const std::vector<std::string>& args) const {
  SplitArguments result;
  bool value_expected = false;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (!value_expected && args[i] == "--") {
      result.literal.assign(args.begin() + static_cast<std::ptrdiff_t>(i) + 1, args.end());
      break;
    }
    const Flag* flag = value_expected ? nullptr : find(args[i]);
    const bool a_switch = flag != nullptr && flag->value.empty();
    if (a_switch && i + 1 < args.size() && (args[i + 1] == "true" || args[i + 1] == "false") && !result.detached)
      result.detached = detached_value(*flag, args[i], args[i + 1]);
    // -nkvo is llama.cpp's flag, not -n with the value "kvo".
    const bool unknown = !value_expected && flag == nullptr && is_wide_short(args[i]) &&
                         (!is_bundle(args[i]) || !llama_cpp_advice(args[i]).empty());
    if (unknown && result.unknown.empty()) result.unknown = args[i];
    result.flags.push_back(flag ? cli11_name(args[i]) : value_expected ? args[i] : without_no(args[i]));
    value_expected = flag && !flag->value.empty();
  }
  return result;
}

bool Flags::is_bundle(std::string_view token) const {
  for (std::size_t i = 1; i < token.size(); ++i) {
    const Flag* flag = find(std::string("-") + token[i]);
    if (flag == nullptr) return false;  // -h within a bundle does not ask for help: the word is another program's flag
    if (!flag->value.empty()) return i + 1 < token.size() || i == 1;
  }
  return true;
}

Error Flags::unknown_flag(const std::string& token) const {
  if (const std::string advice = llama_cpp_advice(token.substr(0, token.find('='))); !advice.empty())
    return {ErrorCode::kUsage, "dllm has no such flag", token, advice};
  const std::string usage = fmt::format("see dllm {} --help", verb_);
  if (token.size() < 2 || token[0] != '-')
    return {ErrorCode::kUsage, "unexpected argument", fmt::format("'{}'", token), usage};
  std::vector<std::string> known = {"--help", "--help-all"};
  for (const Flag& flag : flags_) known.insert(known.end(), flag.names.begin(), flag.names.end());
  const std::string name = token.substr(0, token.find('='));
  const std::string near = nearest(name, known);
  return {ErrorCode::kUsage, "unknown flag", name,
          near.empty() ? usage : fmt::format("did you mean {}? {}", near, usage)};
}

Expected<void> Flags::apply_value(std::size_t index, const std::string& value, const std::string& origin) {
  given_[index] = 1;
  values_.emplace_back(index, value);
  auto applied = flags_[index].apply(value);
  if (applied) return {};
  Error error = std::move(applied).error();
  error.where = origin;
  return error;
}

Expected<void> Flags::apply_environment(const Environment& environment) {
  for (std::size_t i = 0; i < flags_.size(); ++i) {
    for (const std::string& name : flags_[i].environment_names()) {
      if (given_[i]) break;
      const char* value = environment(name);
      // In shells an empty variable often means "unset".
      if (value != nullptr && *value != '\0') DLLM_CHECK_OK(apply_value(i, value, name));
    }
  }
  return {};
}

void Flags::read_only_with(std::string_view group, const std::vector<std::string>& needs) {
  for (Flag& flag : flags_)
    if (flag.group == group) flag.needs = needs;
}

void Flags::read_only_without(std::string_view group, const std::vector<std::string>& others) {
  for (Flag& flag : flags_)
    if (flag.group == group && std::ranges::find(others, flag.long_name()) == others.end()) flag.without = others;
}

Expected<void> Flags::check_combinations() const {
  const auto is_given = [this](const std::string& name) { return given(name); };
  for (const Flag& flag : flags_) {
    if (!given(flag.long_name())) continue;
    if (!flag.needs.empty() && std::ranges::none_of(flag.needs, is_given))
      return Error{ErrorCode::kUsage, fmt::format("is read only with {}", fmt::join(flag.needs, " or ")),
                   flag.long_name(), fmt::format("see dllm {} --help", verb_)};
    if (const auto other = std::ranges::find_if(flag.without, is_given); other != flag.without.end())
      return Error{ErrorCode::kUsage, fmt::format("is not read with {}", *other), flag.long_name(),
                   "leave one of the two out"};
  }
  return {};
}

Expected<ParseOutcome> Flags::parse(const std::vector<std::string>& args, const Environment& environment) {
  CLI::App app(summary_, "dllm " + verb_);
  app.set_help_flag("");
  app.allow_extras();
  CLI::Option* help = app.add_flag("-h,--help");
  CLI::Option* help_all = app.add_flag("--help-all");
  const CLI::callback_t nothing = [](const CLI::results_t&) { return true; };
  std::vector<CLI::Option*> options;
  for (const Flag& flag : flags_) {
    std::string names;
    for (const std::string& name : flag.names) names += (names.empty() ? "" : ",") + cli11_name(name);
    options.push_back(flag.value.empty() ? app.add_flag(names) : app.add_option(names, nothing)->expected(1));
    options.back()->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  SplitArguments split_args = split(args);
  if (!split_args.unknown.empty()) return unknown_flag(split_args.unknown);
  if (split_args.detached) return *split_args.detached;
  std::reverse(split_args.flags.begin(), split_args.flags.end());  // the order in which CLI11 takes them
  try {
    app.parse(split_args.flags);
  } catch (const CLI::Error& error) {
    return Error{ErrorCode::kUsage, error.what(), "dllm " + verb_, fmt::format("see dllm {} --help", verb_)};
  }
  if (help_all->count() > 0) return ParseOutcome::kHelpAll;
  if (help->count() > 0) return ParseOutcome::kHelp;
  // CLI11 2.1 does not collect words for an optional positional, so they are collected here.
  std::vector<std::string> words;
  for (const std::string& token : app.remaining()) {
    if (token.size() > 1 && token[0] == '-') return unknown_flag(token);
    words.push_back(token);
  }
  words.insert(words.end(), split_args.literal.begin(), split_args.literal.end());
  if (words.size() > positional_maximum_) return unknown_flag(words[positional_maximum_]);

  given_.assign(flags_.size(), 0);
  values_.clear();
  for (std::size_t i = 0; i < flags_.size(); ++i)
    for (const std::string& value : options[i]->results()) DLLM_CHECK_OK(apply_value(i, value, flags_[i].long_name()));
  DLLM_CHECK_OK(apply_environment(environment));
  DLLM_CHECK_OK(check_combinations());
  if (positional_target_) *positional_target_ = std::move(words);
  return ParseOutcome::kRun;
}

}  // namespace dllm::app
