#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/load_options.h"

/// How load options are declared, in load_options.cpp and in the files of backends.
///
///   named("prefetch", &LoadOptions::prefetch, {"none", "next"}, "NAME", "none", "read the next layer's weights early")
///
/// The flag follows from the key. An empty text of LoadOptions means the default, of which `otherwise` speaks.
namespace dllm::load_rows {

LoadOption text(const char* key, std::string LoadOptions::* member, const char* value_name, const char* otherwise,
                const std::string& meaning);
/// One of `names`.
LoadOption named(const char* key, std::string LoadOptions::* member, const std::vector<std::string>& names,
                 const char* value_name, const char* otherwise, const std::string& meaning);
/// 0 to `most`; 0 means the default.
LoadOption number(const char* key, std::int32_t LoadOptions::* member, double most, const char* unit,
                  const char* otherwise, const char* meaning);
/// Above 0, to `most`; 0 means that it is not given.
LoadOption factor(const char* key, double LoadOptions::* member, double most, const char* otherwise,
                  const char* meaning);
/// May be given several times.
LoadOption list(const char* key, std::vector<std::string> LoadOptions::* member, const char* value_name,
                const char* meaning);

/// Options of one backend, whose values are in LoadOptions::backend_options: one of `names`, a switch, any text, and a
/// number.
LoadOption own_named(const char* key, const std::vector<std::string>& names, const char* otherwise,
                     const std::string& meaning);
LoadOption own_toggle(const char* key, const char* meaning);
LoadOption own_words(const char* key, const char* value_name, const char* otherwise, const std::string& meaning);
/// 0 to `most`; unlike number(), 0 is a value of its own.
LoadOption own_number(const char* key, double most, const char* otherwise, const std::string& meaning);
/// Their values; empty, false, and nullopt, if they are not given.
std::string own_text(const LoadOptions& load, std::string_view key);
bool own_flag(const LoadOptions& load, std::string_view key);
std::optional<std::int64_t> own_integer(const LoadOptions& load, std::string_view key);

/// The same with these flags; the first long one is its name.
LoadOption with_flags(LoadOption one, std::vector<std::string> flags);
/// ... its value may be a path, which shells complete
LoadOption of_path(LoadOption one);
/// ... it changes the model before a backend sees it
LoadOption of_model(LoadOption one);
/// ... in the short help too
LoadOption usual(LoadOption one);

}  // namespace dllm::load_rows
