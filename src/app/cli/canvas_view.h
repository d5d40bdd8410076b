#pragma once

#include <functional>
#include <string>

#include "app/cli/terminal.h"
#include "dllm/generate.h"

namespace dllm::app {

/// How a token is shown on the canvas.
struct TokenText {
  std::string bytes;     ///< may be part of a UTF-8 character
  bool control = false;  ///< drawn as a dot, because a row of <|endoftext|> would hide the answer
};
using TokenLookup = std::function<TokenText(std::int32_t token)>;

struct FrameStyle {
  int width = 80;   ///< columns; every line of the frame is shorter
  int height = 24;  ///< rows; the frame has at most height - 1 lines
  bool colour = true;
};

/// One frame: a headline, then the answer's cells. Masks are ░, tokens are coloured by confidence, changes of this step
/// are in reverse video, control characters are escaped. Lines end in "\n". If the answer is higher than the terminal,
/// the part around the current window is shown. A pure function of the event.
std::string render_frame(const StepEvent& event, const TokenLookup& lookup, const FrameStyle& style);

/// Draws frames over one another on stderr, each as one synchronized update (DEC private mode 2026, which other
/// terminals ignore).
class CanvasView {
 public:
  CanvasView(Terminal& terminal, TokenLookup lookup) : terminal_(terminal), lookup_(std::move(lookup)) {}
  void show(const StepEvent& event);

 private:
  Terminal& terminal_;
  TokenLookup lookup_;
  int lines_ = 0;  ///< of the frame on the screen
};

}  // namespace dllm::app
