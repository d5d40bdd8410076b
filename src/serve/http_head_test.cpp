#include "serve/http_head.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace dllm::serve {
namespace {

/// The status of a request with these fields; 0: it is accepted.
int status_of(const std::string& fields, const std::string& line = "POST /x HTTP/1.1") {
  HttpHead head;
  const auto error = read_head(line + "\r\n" + fields + "\r\n", head);
  return error ? error->status : 0;
}

TEST(HttpHead, IsRead) {
  HttpHead head;
  ASSERT_FALSE(read_head("GET /a/b?c=d HTTP/1.1\r\nHost: x:80\r\nX-Key:\t one, two \r\nEmpty:\r\n\r\n", head));
  EXPECT_EQ(head.method, "GET");
  EXPECT_EQ(head.path, "/a/b");
  const std::vector<std::pair<std::string, std::string>> fields = {
      {"host", "x:80"}, {"x-key", "one, two"}, {"empty", ""}};
  EXPECT_EQ(head.fields, fields);
}

TEST(HttpHead, AbsoluteTargetsReplaceTheHost) {
  HttpHead head;
  ASSERT_FALSE(read_head("GET HTTP://other:1/a?b HTTP/1.1\r\nHost: x\r\n\r\n", head));
  EXPECT_EQ(head.path, "/a");
  ASSERT_EQ(head.fields.size(), 1u);
  EXPECT_EQ(head.fields.front().second, "other:1");
  EXPECT_EQ(status_of("Host: x\r\n", "GET http://a@b/ HTTP/1.1"), 400);
  EXPECT_EQ(status_of("Host: x\r\n", "GET http:/// HTTP/1.1"), 400);
}

/// RFC 9112, 6.1 and 6.3. What one server repairs in its way, another repairs in another.
TEST(HttpHead, FramingHasOneForm) {
  const std::string host = "Host: x\r\n";
  for (const char* good : {"", "Content-Length: 0\r\n", "content-length:  12\r\n", "Transfer-Encoding: chunked\r\n",
                           "transfer-encoding: CHUNKED\r\n"})
    EXPECT_EQ(status_of(host + good), 0) << good;
  for (const char* wrong : {"Transfer-Encoding: gzip\r\n",
                            "Transfer-Encoding: gzip, chunked\r\n",
                            "Transfer-Encoding: chunked, chunked\r\n",
                            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                            "Transfer-Encoding: chunked, identity\r\n",
                            "Transfer-Encoding: identity\r\n",
                            "Transfer-Encoding:\r\n",
                            "Transfer-Encoding: xchunked\r\n",
                            "Transfer-Encoding: chunked;q=1\r\n",
                            "Transfer-Encoding: \"chunked\"\r\n",
                            "Transfer-Encoding: ,chunked\r\n",
                            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                            "Content-Length: 5\r\nContent-Length: 6\r\n",
                            "Content-Length: 5\r\nContent-Length: 5\r\n",
                            "Content-Length: 5, 5\r\n",
                            "Content-Length: +5\r\n",
                            "Content-Length: -5\r\n",
                            "Content-Length: 0x5\r\n",
                            "Content-Length: 5 5\r\n",
                            "Content-Length:\r\n",
                            "Content-Length: five\r\n"})
    EXPECT_EQ(status_of(host + wrong), 400) << wrong;
  EXPECT_EQ(status_of(host + "Content-Length: 99999999999999999999\r\n"), 413);
  EXPECT_EQ(status_of("Transfer-Encoding: chunked\r\n", "POST /x HTTP/1.0"), 400);
}

TEST(HttpHead, ThereIsOneHost) {
  for (const char* good : {"x", "localhost:8080", "127.0.0.1", "[::1]:80", "", "a.b-c.example:", "[fe80::1%25eth0]"})
    EXPECT_EQ(status_of(fmt::format("Host: {}\r\n", good)), 0) << good;
  for (const char* wrong :
       {"a b", "a,b", "a/b", "a@b", "http://a", "a:b", "[::1", "::1]", ":80", "a\"b", "[]", "a:8:9"})
    EXPECT_EQ(status_of(fmt::format("Host: {}\r\n", wrong)), 400) << wrong;
  EXPECT_EQ(status_of(""), 400);
  EXPECT_EQ(status_of("Host: x\r\nHost: x\r\n"), 400);
  EXPECT_EQ(status_of("Host: x\r\nhost: y\r\n"), 400);
  EXPECT_EQ(status_of("", "GET / HTTP/1.0"), 0);
  EXPECT_EQ(status_of("Host: x\r\nHost: x\r\n", "GET / HTTP/1.0"), 400);
}

TEST(HttpHead, LinesHaveOneForm) {
  for (const char* wrong :
       {"Host: x\r\n folded: y\r\n", "Host: x\r\n\tfolded\r\n", "Host : x\r\n", "Host: x\r\nA B: c\r\n",
        "Host: x\r\nno colon\r\n", "Host: x\r\n: no name\r\n", "Host: x\nA: b\r\n", "Host: x\r\nA: b\rC: d\r\n",
        "Host: x\r\nA: \x01\r\n", "Host: x\r\nA: \x7f\r\n", " Host: x\r\n", "Host: x\r\nContent-Length : 5\r\n",
        "Host: x\r\nTransfer-Encoding\t: chunked\r\n"})
    EXPECT_EQ(status_of(wrong), 400) << wrong;
  EXPECT_EQ(status_of(std::string("Host: x\r\nA: \0\r\n", 15)), 400);
  for (const char* line :
       {"GET /", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", " GET / HTTP/1.1", "GET / HTTP/2.0", "GET / http/1.1",
        "G(T / HTTP/1.1", "GET /a b HTTP/1.1", "GET HTTP/1.1", "", "GET / HTTP/1.10", "GET /\x01 HTTP/1.1"})
    EXPECT_EQ(status_of("Host: x\r\n", line), 400) << line;
  std::string many = "Host: x\r\n";
  for (std::size_t i = 1; i < kMostFields; ++i) many += fmt::format("X-{}: y\r\n", i);
  EXPECT_EQ(status_of(many), 0);
  EXPECT_EQ(status_of(many + "Z: y\r\n"), 431);
}

TEST(HttpHead, EndsAreFoundInPieces) {
  const std::string text = "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET";
  for (std::size_t size = 0; size <= text.size(); ++size)
    for (std::size_t searched = 0; searched < size && searched < 27; ++searched)
      EXPECT_EQ(end_of_head(std::string_view(text).substr(0, size), searched), size < 27 ? std::string::npos : 27u);
  EXPECT_EQ(end_of_head("GET / HTTP/1.1\n\nx", 0), 16u);
  EXPECT_EQ(end_of_head("GET / HTTP/1.1\n\r\nx", 0), 17u);
}

}  // namespace
}  // namespace dllm::serve
