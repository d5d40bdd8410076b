#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dllm::serve {

/// What a request's header says, as far as this server uses it. Fields of trailers never join them.
struct HttpHead {
  std::string method;
  std::string path;                                         ///< without the query
  std::string query;                                        ///< what follows the "?"
  std::vector<std::pair<std::string, std::string>> fields;  ///< names in lower case, values without outer blanks
};

struct HeadError {
  int status = 400;
  std::string message;
};

inline constexpr std::size_t kMostFields = 256;

/// Reads a request's header up to and including its empty line, and refuses everything that another server on the way
/// might frame differently: RFC 9112 lets recipients repair some of it, and two that repair differently disagree where
/// the next request begins. So there is one way to write each thing: CRLF ends lines, a field is on one line, its name
/// ends at the colon; HTTP/1.1 has exactly one Host (3.2); the only transfer coding is one `chunked`, never beside a
/// Content-Length or in HTTP/1.0 (6.1, 6.3); a Content-Length is one number. An absolute target replaces Host (3.2.2).
/// nullopt: `head` holds it; the connection must be closed after an error.
std::optional<HeadError> read_head(std::string_view text, HttpHead& head);

/// Where the header at the beginning of `text` ends, after its empty line; npos: not yet. `searched` bytes of it were
/// searched before.
std::size_t end_of_head(std::string_view text, std::size_t searched);

}  // namespace dllm::serve
