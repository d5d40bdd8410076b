#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/cli/verb.h"

namespace dllm::app {
namespace {

std::vector<std::pair<std::string, Flags>> all_flags(std::vector<std::unique_ptr<Verb>>& keep) {
  std::vector<std::pair<std::string, Flags>> result;
  const auto add = [&](const VerbEntry& entry) {
    keep.push_back(entry.make());  // the flags refer to its members
    result.emplace_back(entry.name, declared_flags(entry, *keep.back()));
  };
  for (const VerbEntry& entry : verbs()) {
    if (entry.group == nullptr) add(entry);
    if (entry.group != nullptr)
      for (const VerbEntry& inner : entry.group()) add(inner);
  }
  return result;
}

/// "isa" of "npu isa".
std::string_view inner_name(std::string_view name) { return name.substr(name.rfind(' ') + 1); }

std::string inner_names(const VerbEntry& group) {
  std::string names;
  for (const VerbEntry& entry : group.group())
    names += (names.empty() ? "" : " ") + std::string(inner_name(entry.name));
  return names;
}

std::vector<const VerbEntry*> groups() {
  std::vector<const VerbEntry*> result;
  for (const VerbEntry& entry : verbs())
    if (entry.group != nullptr) result.push_back(&entry);
  return result;
}

/// For single quotes in shell scripts.
std::string escape(std::string_view text) {
  std::string result;
  for (char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result;
}

std::string verb_names() {
  std::string names;
  for (const VerbEntry& entry : verbs()) names += (names.empty() ? "" : " ") + std::string(entry.name);
  return names;
}

std::string bash_script(const std::vector<std::pair<std::string, Flags>>& all) {
  std::string script = fmt::format(
      "# bash completion of dllm; generated: dllm --completion bash\n"
      "_dllm() {{\n"
      "  local word=\"${{COMP_WORDS[COMP_CWORD]}}\" before=\"${{COMP_WORDS[COMP_CWORD-1]}}\" flags=\"\"\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W '{} --help --version --completion' -- \"$word\"))\n    return\n  fi\n"
      "  local verb=\"${{COMP_WORDS[1]}}\"\n  case \"$verb\" in\n",
      verb_names());
  for (const VerbEntry* group : groups())
    script += fmt::format(
        "    {0})\n      if [ \"$COMP_CWORD\" -eq 2 ]; then\n"
        "        COMPREPLY=($(compgen -W '{1} --help' -- \"$word\"))\n        return\n      fi\n"
        "      verb=\"{0} ${{COMP_WORDS[2]}}\" ;;\n",
        group->name, inner_names(*group));
  script +=
      "  esac\n  case \"$verb $before\" in\n"
      "    '--completion --completion') COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$word\")); return ;;\n";
  for (const auto& [verb, flags] : all)
    for (const Flag& flag : flags.flags()) {
      if (flag.choices.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : flag.names) patterns.push_back(fmt::format("'{} {}'", verb, name));
      script += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n",
                            fmt::join(patterns, "|"), fmt::join(flag.choices, " "));
    }
  script += "  esac\n  case \"$verb\" in\n";
  for (const auto& [verb, flags] : all) {
    std::string names = "--help";
    for (const Flag& flag : flags.flags()) names += fmt::format(" {}", fmt::join(flag.names, " "));
    script += fmt::format("    '{}') flags='{}' ;;\n", verb, names);
  }
  script +=
      "  esac\n"
      "  case \"$word\" in\n"
      "    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$word\")) ;;\n"
      "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
      "  esac\n}\ncomplete -o filenames -F _dllm dllm\n";
  return script;
}

/// In an _arguments specification, brackets and colons of the description are syntax.
std::string zsh_text(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return escape(result);
}

std::string zsh_script(const std::vector<std::pair<std::string, Flags>>& all) {
  std::string script =
      "#compdef dllm\n# zsh completion of dllm; generated: dllm --completion zsh\n"
      "_dllm() {\n  if (( CURRENT == 2 )); then\n    local -a verbs=(\n";
  for (const VerbEntry& entry : verbs()) script += fmt::format("      '{}:{}'\n", entry.name, zsh_text(entry.summary));
  script +=
      "    )\n    _describe verb verbs\n    _arguments '--help[help]' '--version[version]' '--completion[script]'\n"
      "    return\n  fi\n  local verb=${words[2]}\n  shift words; (( CURRENT-- ))\n  case $verb in\n";
  for (const VerbEntry* group : groups()) {
    script += fmt::format("    {})\n      if (( CURRENT == 2 )); then\n        local -a inner=(\n", group->name);
    for (const VerbEntry& entry : group->group())
      script += fmt::format("          '{}:{}'\n", inner_name(entry.name), zsh_text(entry.summary));
    script += fmt::format(
        "        )\n        _describe verb inner\n        return\n      fi\n"
        "      verb=\"{} ${{words[2]}}\"\n      shift words; (( CURRENT-- ))\n      ;;\n",
        group->name);
  }
  script += "  esac\n  case $verb in\n";
  for (const auto& [verb, flags] : all) {
    script += fmt::format("    '{}')\n      _arguments '--help[print this help]'", verb);
    for (const Flag& flag : flags.flags())
      for (const std::string& name : flag.names) {
        std::string value;
        if (!flag.value.empty()) {
          const std::string action = !flag.choices.empty() ? fmt::format("({})", fmt::join(flag.choices, " "))
                                     : flag.takes_path     ? "_files"
                                                           : " ";
          value = fmt::format(":{}:{}", zsh_text(flag.value), action);
        }
        script += fmt::format(" \\\n        '{}[{}]{}'", name, zsh_text(flag.help), value);
      }
    script += " \\\n        '*:file:_files'\n      ;;\n";
  }
  return script + "  esac\n}\n_dllm \"$@\"\n";
}

/// The condition for a verb's flags. A verb of a group may have another verb's name: `dllm run`, `dllm npu run`.
std::string fish_condition(std::string_view verb) {
  const auto space = verb.find(' ');
  std::string text = fmt::format("__fish_seen_subcommand_from {}", inner_name(verb));
  if (space != std::string_view::npos)
    return fmt::format("__fish_seen_subcommand_from {}; and {}", verb.substr(0, space), text);
  for (const VerbEntry* group : groups()) text += fmt::format("; and not __fish_seen_subcommand_from {}", group->name);
  return text;
}

std::string fish_script(const std::vector<std::pair<std::string, Flags>>& all) {
  std::string script = "# fish completion of dllm; generated: dllm --completion fish\n";
  for (const VerbEntry& entry : verbs())
    script +=
        fmt::format("complete -c dllm -n __fish_use_subcommand -f -a {} -d '{}'\n", entry.name, escape(entry.summary));
  for (const VerbEntry* group : groups())
    for (const VerbEntry& entry : group->group())
      script += fmt::format(
          "complete -c dllm -n '__fish_seen_subcommand_from {0}; and not __fish_seen_subcommand_from {1}' -f -a {2} "
          "-d '{3}'\n",
          group->name, inner_names(*group), inner_name(entry.name), escape(entry.summary));
  for (const auto& [verb, flags] : all)
    for (const Flag& flag : flags.flags()) {
      script += fmt::format("complete -c dllm -n '{}'", fish_condition(verb));
      for (const std::string& name : flag.names)
        script += name.starts_with("--") ? fmt::format(" -l {}", name.substr(2))
                  : name.size() == 2     ? fmt::format(" -s {}", name.substr(1))
                                         : fmt::format(" -o {}", name.substr(1));
      if (!flag.choices.empty())
        script += fmt::format(" -x -a '{}'", fmt::join(flag.choices, " "));
      else if (!flag.value.empty())
        script += flag.takes_path ? " -r -F" : " -x";
      script += fmt::format(" -d '{}'\n", escape(flag.help));
    }
  return script;
}

}  // namespace

Expected<std::string> completion_script(std::string_view shell) {
  std::vector<std::unique_ptr<Verb>> keep;
  if (shell == "bash") return bash_script(all_flags(keep));
  if (shell == "zsh") return zsh_script(all_flags(keep));
  if (shell == "fish") return fish_script(all_flags(keep));
  return Error{ErrorCode::kUsage, shell.empty() ? "no shell is named" : fmt::format("'{}' is unknown", shell),
               "--completion", "known: bash, zsh, fish"};
}

}  // namespace dllm::app
