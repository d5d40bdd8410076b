#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "npu_core/assembler/expression.h"

namespace dllm::npu {

/// Separators of words in a line.
inline constexpr std::string_view kBlanks = " \t\r";

/// One line of source without its comment, with its origin.
struct SourceLine {
  std::string text;
  std::uint32_t line = 0;     ///< from 1: where the text is
  std::uint32_t invoked = 0;  ///< line of the outermost macro call or .rep that produced it; 0: none
};

/// Textual expansion: comments, .const, .assert, .macro ... .endm, .rep ... .endr. The remaining labels, instructions
/// and other directives are passed to `sink` one line at a time, in order.
///
/// Substitution is textual: a body writes `(\name) * 2`. In the body of a macro, `\name` is a parameter and `\@` the
/// number of the call; in `.rep COUNT, name`, `\name` is
/// the trip, from 0.
class Expander {
 public:
  using Sink = std::function<Expected<void>(const SourceLine&)>;
  /// Receives an error, with file:line:column. Returns false to stop reading.
  using Report = std::function<bool(Error)>;

  Expander(std::string file, std::size_t max_lines, Sink sink, Report report)
      : file_(std::move(file)), max_lines_(max_lines), sink_(std::move(sink)), report_(std::move(report)) {}

  /// Continues after a line with an error, unless the rest cannot be understood without it (a block without end, an
  /// expansion that is too long).
  void run(std::string_view text);

  const Constants& constants() const { return constants_; }
  /// An error at a place of a line.
  Error error(const SourceLine& line, std::size_t column, std::string what, std::string hint = "") const;
  /// The value of an expression that starts at `column` of the line.
  Expected<std::int64_t> value(const SourceLine& line, std::size_t column, std::string_view text) const;

 private:
  struct Macro {
    std::vector<std::string> parameters;
    std::vector<SourceLine> body;
  };
  using Lines = std::vector<SourceLine>;

  Error too_long(const SourceLine& line, std::size_t column);
  void report(Error error);
  void expand(const Lines& lines, int depth);
  /// Processes a line, or a block from its first line; `at` moves to the last one.
  Expected<void> statement(const Lines& lines, std::size_t& at, int depth);
  Expected<std::size_t> block_end(const Lines& lines, std::size_t start, std::string_view open, std::string_view close);
  Expected<void> define_constant(const SourceLine& line, std::string_view rest, std::size_t column);
  Expected<void> define_macro(const Lines& lines, std::size_t start, std::size_t end);
  Expected<void> repeat(const Lines& lines, std::size_t start, std::size_t end, int depth);
  Expected<void> call(const Macro& macro, const std::string& name, const SourceLine& line, std::string_view arguments,
                      std::size_t column, int depth);

  std::string file_;
  std::size_t max_lines_;
  Sink sink_;
  Report report_;
  bool stopped_ = false;
  Constants constants_;
  std::map<std::string, Macro, std::less<>> macros_;
  std::size_t emitted_ = 0;
  std::size_t calls_ = 0;
};

/// The text up to a comment (";", "//", "#"), without trailing blanks.
std::string_view without_comment(std::string_view line);

/// Parts separated by commas outside parentheses, with the offset of each part's first character.
struct Part {
  std::string_view text;
  std::size_t offset = 0;
};
std::vector<Part> split_operands(std::string_view text);

}  // namespace dllm::npu
