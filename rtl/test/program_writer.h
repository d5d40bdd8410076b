#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "test/vectors.h"

namespace dllm::rtl {

/// Text of a random program. `scratch`: the general register through which it sets control registers.
class ProgramText {
 public:
  explicit ProgramText(Vectors& random, std::uint32_t scratch = 15) : random_(random), scratch_(scratch) {}
  std::string take() { return std::move(text_); }

 protected:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  void lines(const std::string& text) { text_ += text; }
  void set(std::uint32_t r, std::uint64_t value) { line("li gp{}, {}", r, value); }
  void control(const char* name, std::uint32_t value) {
    set(scratch_, value);
    line("C_SET_CSR gp{}, {}", scratch_, name);
  }

  Vectors& random_;

 private:
  std::uint32_t scratch_;
  std::string text_;
};

/// What programs without a matrix unit have in common. gp1-gp4 hold rows, gp5-gp8 words.
class ProgramWriter : public ProgramText {
 public:
  using ProgramText::ProgramText;

 protected:
  std::string row() { return fmt::format("gp{}", 1 + random_.below(4)); }
  std::string word() { return fmt::format("gp{}", 5 + random_.below(4)); }
  std::string f() { return fmt::format("f{}", random_.below(8)); }
  std::uint32_t masked() { return random_.one_in(3) ? 1 : 0; }
};

}  // namespace dllm::rtl
