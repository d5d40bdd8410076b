#include "app/cli/canvas_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <string_view>
#include <vector>

namespace dllm::app {
namespace {

enum class Look { kPlain, kMask, kControl, kToken };

/// A run of text in one style; never contains a line break.
struct Piece {
  std::string text;
  Look look = Look::kPlain;
  double confidence = 1;
  bool changed = false;
};

struct Line {
  std::vector<Piece> pieces;
  int columns = 0;
};

/// Red to green over the 256-colour cube. Most confidences are near 1, so the steps are finer there.
int confidence_colour(double confidence) {
  constexpr std::array<std::pair<double, int>, 8> ramp = {
      {{0.3, 196}, {0.5, 202}, {0.7, 208}, {0.8, 214}, {0.9, 220}, {0.95, 190}, {0.99, 118}, {2.0, 46}}};
  for (const auto& [limit, colour] : ramp)
    if (confidence < limit) return colour;
  return 244;  // NaN
}

std::string style_of(const Piece& piece) {
  switch (piece.look) {
    case Look::kPlain:
      return "";
    case Look::kMask:
      return "\x1b[2m";
    case Look::kControl:
      return piece.changed ? "\x1b[7m" : "\x1b[2m";
    case Look::kToken:
      break;
  }
  return fmt::format("\x1b[{}38;5;{}m", piece.changed ? "1;7;" : "", confidence_colour(piece.confidence));
}

/// Breaks cells into lines of at most `width` columns; records the line on which each cell begins.
class Layout {
 public:
  explicit Layout(int width) : width_(std::max(width, 8)) {}

  void add(const CanvasCell& cell, const TokenLookup& lookup) {
    const TokenText token = cell.masked ? TokenText{} : lookup(cell.token);
    if (cell.masked || token.control) flush();
    starts_.push_back(lines_.size() - 1);
    if (cell.masked) {
      put("░", piece_for(cell, Look::kMask));
    } else if (token.control) {
      put("·", piece_for(cell, Look::kControl));
    } else {
      pending_look_ = piece_for(cell, Look::kToken);
      pending_ += token.bytes;
      drain(/*complete=*/false);
    }
  }

  void flush() { drain(/*complete=*/true); }
  const std::vector<Line>& lines() const { return lines_; }
  std::size_t line_of(std::size_t cell) const {
    return starts_.empty() ? 0 : starts_[std::min(cell, starts_.size() - 1)];
  }

 private:
  static Piece piece_for(const CanvasCell& cell, Look look) { return {"", look, cell.confidence, cell.changed}; }

  /// Removes complete characters from `pending_`. A token may end inside one; the next token's bytes complete it.
  void drain(bool complete) {
    std::string_view rest = pending_;
    while (!rest.empty()) {
      char32_t c = 0;
      const std::size_t length = decode_utf8(rest, c);
      if (length == 0) {
        if (!complete && rest.size() < 4 && may_continue(rest)) break;
        put("\uFFFD", pending_look_);
        rest.remove_prefix(1);
        continue;
      }
      if (c == '\n') {
        put("⏎", pending_look_);
        break_line();
      } else {
        put(c == '\t' ? " " : sanitize(rest.substr(0, length)), pending_look_);
      }
      rest.remove_prefix(length);
    }
    pending_.erase(0, pending_.size() - rest.size());
  }

  /// A lead byte followed only by continuation bytes, fewer than it requires.
  static bool may_continue(std::string_view bytes) {
    const auto lead = static_cast<unsigned char>(bytes[0]);
    const std::size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
    return bytes.size() < wanted &&
           std::all_of(
               bytes.begin() + 1, bytes.end(), [](char b) { return (static_cast<unsigned char>(b) & 0xc0u) == 0x80u; });
  }

  void put(std::string_view text, const Piece& look) {
    const int columns = display_width(text);
    if (lines_.back().columns + columns > width_) break_line();
    Line& line = lines_.back();
    Piece* last = line.pieces.empty() ? nullptr : &line.pieces.back();
    const bool same = last && last->look == look.look && last->changed == look.changed &&
                      confidence_colour(last->confidence) == confidence_colour(look.confidence);
    if (same) {
      last->text += text;
    } else {
      line.pieces.push_back(look);
      line.pieces.back().text = text;
    }
    line.columns += columns;
  }

  void break_line() { lines_.emplace_back(); }

  int width_;
  std::vector<Line> lines_ = std::vector<Line>(1);
  std::vector<std::size_t> starts_;
  std::string pending_;
  Piece pending_look_;
};

std::string clip(std::string_view text, int width) {
  std::string result;
  while (!text.empty()) {
    char32_t c = 0;
    const std::size_t length = std::max<std::size_t>(decode_utf8(text, c), 1);
    width -= display_width(text.substr(0, length));
    if (width < 0) break;
    result += text.substr(0, length);
    text.remove_prefix(length);
  }
  return result;
}

}  // namespace

std::string render_frame(const StepEvent& event, const TokenLookup& lookup, const FrameStyle& style) {
  const int width = std::max(style.width - 1, 8);  // the last column would wrap on some terminals
  Layout layout(width);
  const auto prompt = static_cast<std::size_t>(event.prompt_length);
  for (std::size_t i = prompt; i < event.canvas.size(); ++i) layout.add(event.canvas[i], lookup);
  layout.flush();

  const std::size_t total = event.canvas.size() - std::min(prompt, event.canvas.size());
  const int done = static_cast<int>(total) - event.masked;
  std::string out = clip(fmt::format("step {} · NFE {} · {}/{} tokens · window {}..{}", event.step + 1, event.nfe, done,
                                     total, event.block_begin, event.block_end),
                         width) +
                    "\n";
  const auto rows = static_cast<std::size_t>(std::max(style.height - 2, 1));
  const std::size_t count = layout.lines().size();
  std::size_t first = 0;
  if (count > rows) {
    const auto begin = static_cast<std::size_t>(std::max(event.block_begin - event.prompt_length, 0));
    const std::size_t line = layout.line_of(begin);
    first = std::min(line - std::min(line, rows / 4), count - rows);
  }
  for (std::size_t i = first; i < std::min(first + rows, count); ++i) {
    for (const Piece& piece : layout.lines()[i].pieces) {
      const std::string look = style.colour ? style_of(piece) : "";
      out += look + piece.text;
      if (!look.empty()) out += "\x1b[0m";
    }
    out += "\n";
  }
  return out;
}

void CanvasView::show(const StepEvent& event) {
  terminal_.measure();
  const std::string frame = render_frame(event, lookup_, {terminal_.width, terminal_.height, terminal_.colour});
  if (!terminal_.err_tty) {
    terminal_.err << frame << std::flush;
    return;
  }
  std::string out = "\x1b[?2026h";
  // The window may now be smaller than the last frame; lines that have scrolled away cannot be reached.
  if (const int up = std::min(lines_, terminal_.height - 1); up > 0) out += fmt::format("\x1b[{}A", up);
  out += "\r";
  lines_ = 0;
  for (char c : frame) {
    if (c == '\n') {
      out += "\x1b[K";
      ++lines_;
    }
    out += c;
  }
  terminal_.err << out + "\x1b[J\x1b[?2026l" << std::flush;  // one write: std::cerr flushes after every <<
}

}  // namespace dllm::app
