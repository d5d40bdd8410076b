#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "test/vectors.h"

namespace dllm::rtl {

/// What sources of random programs have in common. gp1-gp4 hold rows, gp5-gp8 words.
class ProgramWriter {
 public:
  explicit ProgramWriter(Vectors& random) : random_(random) {}
  std::string take() { return std::move(text_); }

 protected:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  void set(std::uint32_t r, std::uint32_t value) { line("li gp{}, {}", r, value); }
  std::string row() { return fmt::format("gp{}", 1 + random_.below(4)); }
  std::string word() { return fmt::format("gp{}", 5 + random_.below(4)); }
  std::string f() { return fmt::format("f{}", random_.below(8)); }
  std::uint32_t masked() { return random_.one_in(3) ? 1 : 0; }

  Vectors& random_;

 private:
  std::string text_;
};

}  // namespace dllm::rtl
