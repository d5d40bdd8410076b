#include "serve/http_head.h"

#include <fmt/format.h>

#include <algorithm>

namespace dllm::serve {
namespace {

using Refused = std::optional<HeadError>;

Refused bad(std::string message) { return HeadError{400, std::move(message)}; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string lowered(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), lower);
  return result;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alnum(char c) { return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z'); }

/// RFC 9110, 5.6.2: the characters of names and methods.
bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return is_alnum(c) || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

/// RFC 9110, 5.5: visible characters, blanks, and bytes above 127.
bool is_value(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
  });
}

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

/// uri-host [":" port], RFC 9110, 7.2; empty for targets without an authority. The grammar allows commas in names, but
/// no name has one: they are of several fields that a proxy has joined.
bool is_host(std::string_view host) {
  if (const std::size_t colon = host.rfind(':'); colon != host.npos && host.find(']', colon) == host.npos) {
    if (!std::ranges::all_of(host.substr(colon + 1), is_digit)) return false;
    host = host.substr(0, colon);
    if (host.empty()) return false;
  }
  if (host.starts_with('[')) {
    if (!host.ends_with(']')) return false;
    host = host.substr(1, host.size() - 2);
    return !host.empty() && std::ranges::all_of(host, [](char c) {
      return is_alnum(c) || std::string_view(":.-_~%!$&'()*+,;=").find(c) != std::string_view::npos;
    });
  }
  return std::ranges::all_of(host, [](char c) {
    return is_alnum(c) || std::string_view("-._~%!$&'()*+;=").find(c) != std::string_view::npos;
  });
}

/// "METHOD TARGET HTTP/1.x". `authority`: of an absolute target.
Refused read_request_line(std::string_view line, HttpHead& head, bool& one_one, std::optional<std::string>& authority) {
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || first == last) return bad("this is not HTTP: the first line is no request");
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  std::string_view target = line.substr(first + 1, last - first - 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return bad("this is not HTTP/1.1 or HTTP/1.0");
  one_one = version == "HTTP/1.1";
  const bool visible = std::ranges::all_of(target, [](char c) { return c > 0x20 && c != 0x7f; });
  if (!is_token(method) || target.empty() || !visible) return bad("this is not HTTP: the first line is no request");
  for (const std::string_view scheme : {std::string_view("http://"), std::string_view("https://")})
    if (lowered(target.substr(0, scheme.size())) == scheme) {
      target.remove_prefix(scheme.size());
      const std::size_t end = std::min(target.find_first_of("/?"), target.size());
      authority = std::string(target.substr(0, end));
      target.remove_prefix(end);
      if (authority->empty() || !is_host(*authority)) return bad("the target names no host");
      if (target.empty()) target = "/";
      break;
    }
  head.method = std::string(method);
  const std::size_t query = std::min(target.find('?'), target.size());
  head.path = std::string(target.substr(0, query));
  head.query = std::string(target.substr(std::min(query + 1, target.size())));
  return std::nullopt;
}

Refused read_fields(std::string_view text, HttpHead& head) {
  while (!text.empty()) {
    const std::size_t end = text.find("\r\n");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 2);
    if (line.empty()) break;
    if (line.front() == ' ' || line.front() == '\t')
      return bad("a field continues on a second line (obsolete folding)");
    const std::size_t colon = line.find(':');
    if (colon == line.npos || !is_token(line.substr(0, colon))) return bad("a line of the header is no field");
    const std::string_view value = without_blanks(line.substr(colon + 1));
    if (!is_value(value)) return bad("a field holds control characters");
    if (head.fields.size() == kMostFields) return HeadError{431, fmt::format("more than {} fields", kMostFields)};
    head.fields.emplace_back(lowered(line.substr(0, colon)), std::string(value));
  }
  return std::nullopt;
}

/// The values of all fields of a name.
std::vector<std::string_view> values_of(const HttpHead& head, std::string_view name) {
  std::vector<std::string_view> values;
  for (const auto& [key, value] : head.fields)
    if (key == name) values.push_back(value);
  return values;
}

Refused check_framing(const HttpHead& head, bool one_one) {
  const auto lengths = values_of(head, "content-length"), codings = values_of(head, "transfer-encoding");
  if (!codings.empty()) {
    if (!one_one) return bad("HTTP/1.0 has no Transfer-Encoding");
    if (codings.size() > 1 || lowered(codings.front()) != "chunked")
      return bad("the only Transfer-Encoding here is \"chunked\", once");
    if (!lengths.empty()) return bad("both a Transfer-Encoding and a Content-Length");
  }
  if (lengths.size() > 1) return bad("more than one Content-Length");
  if (!lengths.empty() && (lengths.front().empty() || !std::ranges::all_of(lengths.front(), is_digit)))
    return bad("the Content-Length is no number");
  if (!lengths.empty() && lengths.front().size() > 18) return HeadError{413, "the Content-Length is too large"};
  return std::nullopt;
}

Refused check_host(HttpHead& head, bool one_one, const std::optional<std::string>& authority) {
  const auto hosts = values_of(head, "host");
  if (hosts.size() > 1) return bad("more than one Host");
  if (hosts.empty() && one_one) return bad("there is no Host");
  if (!hosts.empty() && !is_host(hosts.front())) return bad("the Host is not a name with a port");
  if (!authority) return std::nullopt;
  std::erase_if(head.fields, [](const auto& field) { return field.first == "host"; });
  head.fields.emplace_back("host", *authority);
  return std::nullopt;
}

}  // namespace

std::size_t end_of_head(std::string_view text, std::size_t searched) {
  // A header whose lines end otherwise never ends with CRLF CRLF, and would be waited for.
  const std::size_t from = searched < 3 ? 0 : searched - 3;
  const std::size_t proper = text.find("\r\n\r\n", from), bare = text.find("\n\n", from);
  const std::size_t mixed = text.find("\n\r\n", from);
  const std::size_t end =
      std::min({proper == text.npos ? text.npos : proper + 4, bare == text.npos ? text.npos : bare + 2,
                mixed == text.npos ? text.npos : mixed + 3});
  return end;
}

std::optional<HeadError> read_head(std::string_view text, HttpHead& head) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n' && (i == 0 || text[i - 1] != '\r')) return bad("a line of the header does not end with CRLF");
    if (text[i] == '\r' && (i + 1 == text.size() || text[i + 1] != '\n'))
      return bad("a line of the header holds a carriage return");
  }
  const std::size_t end = text.find("\r\n");
  if (end == text.npos) return bad("this is not HTTP");
  bool one_one = false;
  std::optional<std::string> authority;
  if (auto error = read_request_line(text.substr(0, end), head, one_one, authority)) return error;
  if (auto error = read_fields(text.substr(end + 2), head)) return error;
  if (auto error = check_framing(head, one_one)) return error;
  return check_host(head, one_one, authority);
}

}  // namespace dllm::serve
