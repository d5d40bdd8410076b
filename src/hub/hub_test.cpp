// Names, choices and the cache's layout. Network transfers are tested against a server
// (tests/app/cli_hub_test.py).
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "hub/cache.h"
#include "hub/certificates.h"
#include "hub/checksum.h"
#include "hub/config.h"
#include "hub/pull.h"
#include "hub/select.h"

namespace dllm::hub {
namespace {

namespace fs = std::filesystem;

class HubTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / ("dllm_hub_test_" + std::to_string(getpid()));
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  void write(const fs::path& path, const std::string& text) const {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  fs::path directory_;
};

Expected<Config> config_of(const std::map<std::string, std::string>& variables) {
  return config_from([&](const std::string& name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(HubCertificates, AreFoundOnEveryDistribution) {
  const auto found = [](const std::map<std::string, std::string>& variables, const std::set<std::string>& there) {
    const auto environment = [&](const std::string& name) -> const char* {
      const auto value = variables.find(name);
      return value == variables.end() ? nullptr : value->second.c_str();
    };
    const Certificates built_in{"/opt/built/bundle.pem", "/opt/built/certs"};
    const Certificates one =
        find_certificates(environment, built_in, [&](const std::string& path) { return there.contains(path); });
    return one.file + "|" + one.folder;
  };
  const std::string debian = "/etc/ssl/certs/ca-certificates.crt", fedora = "/etc/pki/tls/certs/ca-bundle.crt";
  EXPECT_EQ(found({}, {debian, "/etc/ssl/certs"}), debian + "|");
  EXPECT_EQ(found({}, {fedora, "/etc/pki/tls/certs"}), fedora + "|");
  EXPECT_EQ(found({}, {"/etc/ssl/ca-bundle.pem"}), "/etc/ssl/ca-bundle.pem|");
  EXPECT_EQ(found({}, {"/etc/ssl/cert.pem"}), "/etc/ssl/cert.pem|");
  EXPECT_EQ(found({}, {"/etc/ssl/certs"}), "|/etc/ssl/certs");
  EXPECT_EQ(found({}, {debian, "/opt/built/bundle.pem"}), "/opt/built/bundle.pem|") << "the library's own come first";
  EXPECT_EQ(found({}, {debian, "/opt/built/certs"}), "|/opt/built/certs");
  EXPECT_EQ(found({}, {}), "|");
  EXPECT_EQ(found({{"SSL_CERT_FILE", "/mine.pem"}}, {debian}), "/mine.pem|")
      << "whether it exists is the user's matter";
  EXPECT_EQ(found({{"SSL_CERT_DIR", "/mine"}}, {debian}), "|/mine");
  EXPECT_EQ(found({{"SSL_CERT_FILE", ""}}, {debian}), debian + "|");
}

TEST(HubNames, AreParsedAndRefused) {
  EXPECT_EQ(parse_model_name("org/model")->repository, "org/model");
  EXPECT_EQ(parse_model_name("org/model.v1:Q4_K_M")->quant, "Q4_K_M");
  EXPECT_EQ(parse_model_name("gpt2")->repository, "gpt2");
  for (const char* bad :
       {"", "org/", "/model", "a/b/c", "../x", "a/..", "a--b/c", "a b/c", "a/b:", "a/b:../c", "a/b\n"})
    EXPECT_FALSE(parse_model_name(bad)) << bad;
  EXPECT_TRUE(is_inner_path("a/b c/d.gguf"));
  for (const char* bad : {"", "/etc/passwd", "a/../b", "..", "a//b", "./a", "a\\b", "a/"})
    EXPECT_FALSE(is_inner_path(bad)) << bad;
}

TEST_F(HubTest, ConfigurationIsThatOfHuggingFace) {
  EXPECT_EQ(config_of({{"HOME", "/h"}})->cache, "/h/.cache/huggingface/hub");
  EXPECT_EQ(config_of({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}})->cache, "/x/huggingface/hub");
  EXPECT_EQ(config_of({{"HOME", "/h"}, {"HF_HOME", "/y"}})->cache, "/y/hub");
  EXPECT_EQ(config_of({{"HF_HUB_CACHE", "/z"}})->cache, "/z");
  EXPECT_FALSE(config_of({}));
  EXPECT_EQ(config_of({{"HOME", "/h"}})->endpoint, "https://huggingface.co");
  EXPECT_EQ(config_of({{"HOME", "/h"}, {"HF_ENDPOINT", "http://localhost:80//"}})->endpoint, "http://localhost:80");
  EXPECT_FALSE(config_of({{"HOME", "/h"}, {"HF_ENDPOINT", "ftp://x"}}));
  EXPECT_TRUE(config_of({{"HOME", "/h"}, {"HF_HUB_OFFLINE", "True"}})->offline);
  EXPECT_FALSE(config_of({{"HOME", "/h"}, {"HF_HUB_OFFLINE", "0"}})->offline);
  write(directory_ / "token", " hf_secret\n");
  EXPECT_EQ(config_of({{"HF_HOME", directory_.string()}})->token, "hf_secret");
  EXPECT_EQ(config_of({{"HF_HOME", directory_.string()}, {"HF_TOKEN", "other"}})->token, "other");
  EXPECT_FALSE(config_of({{"HOME", "/h"}, {"HF_TOKEN_PATH", (directory_ / "absent").string()}}));
  EXPECT_FALSE(config_of({{"HOME", "/h"}, {"HF_TOKEN_PATH", directory_.string()}}));  // a directory
}

std::string chosen(const std::vector<std::string>& paths, std::string_view quant, std::string_view file = "") {
  const auto selection = select_files(paths, quant, file, "org/model");
  if (!selection) return "error: " + selection.error().message();
  std::string text;
  for (const std::string& path : selection->files) text += (text.empty() ? "" : " ") + path;
  return (selection->directory ? "folder: " : "") + text;
}

TEST(HubSelection, OneFileOrTheListOfThem) {
  const std::vector<std::string> several = {"README.md",  "m-Q4_K_M.gguf",   "m-Q4_K_S.gguf",
                                            "m.f16.gguf", "mmproj-f16.gguf", "imatrix.gguf"};
  EXPECT_EQ(chosen(several, "Q4_K_M"), "m-Q4_K_M.gguf");
  EXPECT_EQ(chosen(several, "q4_k_s"), "m-Q4_K_S.gguf");
  EXPECT_EQ(chosen(several, "F16"), "m.f16.gguf");
  EXPECT_NE(chosen(several, "").find("m-Q4_K_M.gguf, m-Q4_K_S.gguf, m.f16.gguf"), std::string::npos);
  EXPECT_NE(chosen(several, "Q8_0").find("no GGUF file ends in 'Q8_0'"), std::string::npos);
  EXPECT_NE(chosen(several, "K_M").find("there are"), std::string::npos) << "a part of a type's name is not a type";
  EXPECT_EQ(chosen({"m_Q8_0.gguf", "m_F16.gguf"}, "Q8_0"), "m_Q8_0.gguf");
  EXPECT_EQ(chosen({"a.gguf"}, ""), "a.gguf");
  EXPECT_EQ(chosen({"Q8_0/model.gguf", "model-Q4_0.gguf"}, "Q4_0"), "model-Q4_0.gguf");
  EXPECT_EQ(chosen(several, "", "mmproj-f16.gguf"), "mmproj-f16.gguf");
  EXPECT_NE(chosen(several, "", "x.gguf").find("there is no file 'x.gguf'"), std::string::npos);
}

TEST(HubSelection, SplitModelsComeWhole) {
  const std::vector<std::string> parts = {"m-Q4_0-00001-of-00002.gguf", "m-Q4_0-00002-of-00002.gguf", "m-Q2_K.gguf"};
  const std::string both = parts[0] + " " + parts[1];
  EXPECT_EQ(chosen(parts, "Q4_0"), both);
  EXPECT_EQ(chosen({parts[1], parts[0]}, ""), both);
  EXPECT_EQ(chosen(parts, "", parts[0]), both);
  EXPECT_NE(chosen(parts, "", parts[1]).find("give the first part"), std::string::npos);
  EXPECT_NE(chosen({parts[0]}, "").find("lacks 'm-Q4_0-00002-of-00002.gguf'"), std::string::npos);
  EXPECT_NE(chosen({parts[1]}, "Q4_0").find("no GGUF file ends in"), std::string::npos);
  EXPECT_NE(chosen(parts, "").find("2 GGUF files fit"), std::string::npos) << "a split model is one choice";
  EXPECT_EQ(chosen(parts, "Q2_K"), "m-Q2_K.gguf");
}

TEST(HubSelection, CheckpointsComeWhole) {
  const std::vector<std::string> paths = {"config.json",
                                          "model-00001-of-00002.safetensors",
                                          "model-00002-of-00002.safetensors",
                                          "model.safetensors.index.json",
                                          "consolidated.safetensors",
                                          "tokenizer.json",
                                          "merges.txt",
                                          "chat_template.jinja",
                                          "modeling_llada.py",
                                          "onnx/model.onnx",
                                          "onnx/config.json",
                                          "README.md"};
  EXPECT_EQ(chosen(paths, ""),
            "folder: config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
            "model.safetensors.index.json tokenizer.json merges.txt chat_template.jinja");
  EXPECT_NE(chosen(paths, "Q4_0").find("no GGUF files"), std::string::npos);
  EXPECT_NE(chosen({"config.json", "pytorch_model.bin"}, "").find("neither"), std::string::npos);
  EXPECT_NE(chosen({}, "").find("empty"), std::string::npos);
}

TEST_F(HubTest, CacheHasHuggingFacesLayout) {
  const RepositoryCache cache(directory_.string(), "org/model");
  const fs::path folder = directory_ / "models--org--model";
  ASSERT_TRUE(cache.make_folders("c0ffee"));
  EXPECT_EQ(cache.commit_of("main"), std::nullopt);
  write(cache.blob("abc"), "bytes");
  ASSERT_TRUE(cache.link("c0ffee", "sub/a.gguf", "abc"));
  ASSERT_TRUE(cache.link("c0ffee", "sub/a.gguf", "abc")) << "again";
  ASSERT_TRUE(cache.set_commit("refs/pr/1", "c0ffee"));
  EXPECT_EQ(fs::read_symlink(folder / "snapshots/c0ffee/sub/a.gguf"), "../../../blobs/abc");
  EXPECT_EQ(fs::file_size(folder / "snapshots/c0ffee/sub/a.gguf"), 5u);
  EXPECT_EQ(cache.commit_of("refs/pr/1"), "c0ffee");
  EXPECT_EQ(cache.commit_of("c0ffee"), "c0ffee") << "a commit is its own name";
  ASSERT_TRUE(cache.link("c0ffee", "b.gguf", "gone"));
  EXPECT_EQ(cache.files("c0ffee"), std::vector<std::string>{"sub/a.gguf"}) << "dangling links are not files";
  // The link's previous target is replaced.
  write(cache.blob("def"), "other");
  ASSERT_TRUE(cache.link("c0ffee", "sub/a.gguf", "def"));
  EXPECT_EQ(fs::read_symlink(folder / "snapshots/c0ffee/sub/a.gguf"), "../../../blobs/def");
}

TEST_F(HubTest, DigestsAreSha256AndGits) {
  const fs::path path = directory_ / "file";
  write(path, "hello\n");
  EXPECT_EQ(*file_digest(path.string(), DigestKind::kSha256, {}),
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  EXPECT_EQ(*file_digest(path.string(), DigestKind::kGitBlob, {}), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(digest_kind(std::string(64, 'a')), DigestKind::kSha256);
  EXPECT_EQ(digest_kind(std::string(40, 'a')), DigestKind::kGitBlob);
  EXPECT_EQ(digest_kind(std::string(64, 'g')), DigestKind::kNone);
  EXPECT_EQ(digest_kind("abc"), DigestKind::kNone);
  EXPECT_EQ(file_digest((directory_ / "absent").string(), DigestKind::kSha256, {}).error().code, ErrorCode::kIo);
  EXPECT_EQ(file_digest(path.string(), DigestKind::kSha256, [](std::uint64_t) { return false; }).error().code,
            ErrorCode::kCancelled);
}

TEST_F(HubTest, OfflineAnswersFromTheCacheAlone) {
  Config config;
  config.cache = directory_.string();
  config.offline = true;
  const PullRequest request{{"org/model", "Q8_0"}, "main", ""};
  EXPECT_EQ(pull(config, request, {}).error().code, ErrorCode::kUsage);
  const RepositoryCache cache(config.cache, "org/model");
  write(cache.blob("abc"), "bytes");
  ASSERT_TRUE(cache.link("c0ffee", "m-Q8_0.gguf", "abc"));
  ASSERT_TRUE(cache.set_commit("main", "c0ffee"));
  const auto pulled = pull(config, request, {});
  ASSERT_TRUE(pulled) << pulled.error().message();
  EXPECT_EQ(pulled->path, cache.snapshot("c0ffee") + "/m-Q8_0.gguf");
  EXPECT_EQ(pulled->bytes, 5u);
  EXPECT_FALSE(pulled->asked);
}

}  // namespace
}  // namespace dllm::hub
