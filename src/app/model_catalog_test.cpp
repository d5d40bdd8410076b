#include "app/model_catalog.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/testing/temp_dir.h"
#include "engine/embedded_model.h"

namespace dllm::app {
namespace {

namespace fs = std::filesystem;

class Catalog : public ::testing::Test {
 protected:
  void model(const std::string& path) {
    const fs::path file = directory_.path() / path;
    fs::create_directories(file.parent_path());
    const auto bytes = embedded_model();
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  void text(const std::string& path, const std::string& content) {
    const fs::path file = directory_.path() / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }
  std::vector<std::string> names(std::optional<serve::ModelEntry> first = {}) const {
    ModelCatalog catalog(std::move(first), directory_.path().string(), "");
    std::vector<std::string> all;
    for (const auto& one : catalog.list()) all.push_back(one.name);
    return all;
  }

  test::TempDir directory_;
};

using ModelNames = std::vector<std::string>;

TEST_F(Catalog, ListsFilesAndFoldersOneLevelDeep) {
  model("b.gguf");
  model("a.Q8_0.gguf");
  model("inner/c.GGUF");
  model("inner/deeper/d.gguf");
  model(".hidden/e.gguf");
  text("s-00001-of-00002.gguf", "x");
  text("s-00002-of-00002.gguf", "x");
  text("mmproj-x.gguf", "x");
  text("notes.txt", "x");
  // Whoever opens a pipe waits for its writer.
  ASSERT_EQ(mkfifo((directory_.path() / "pipe.gguf").c_str(), 0600), 0);
  fs::create_directories(directory_.path() / "pipes");
  ASSERT_EQ(mkfifo((directory_.path() / "pipes/config.json").c_str(), 0600), 0);
  text("pipes/model.safetensors", "12345");
  text("hf/config.json", R"({"model_type": "llada", "max_position_embeddings": 77, "vocab_size": 5})");
  text("hf/model.safetensors", "12345");
  EXPECT_EQ(names(), (ModelNames{"a.Q8_0", "b", "hf", "inner/c", "s"}));
  ModelCatalog catalog({}, directory_.path().string(), "");
  const auto hf = catalog.find("hf");
  ASSERT_TRUE(hf);
  EXPECT_EQ(hf->bytes, 5);
  EXPECT_EQ(hf->context_length, 77);
  EXPECT_EQ(hf->vocabulary, 5);
  EXPECT_EQ(hf->architecture, "llada");
  EXPECT_EQ(catalog.find("s")->bytes, 2);
}

TEST_F(Catalog, FindsAModelByTheNamesThatPeopleUse) {
  model("b-Q8_0.gguf");
  model("a.gguf");
  ModelCatalog catalog({}, directory_.path().string(), "");
  EXPECT_EQ(catalog.find("")->name, "a");
  EXPECT_EQ(catalog.find("a.gguf")->name, "a");
  EXPECT_EQ(catalog.find("b-Q8_0:q8_0")->name, "b-Q8_0");
  for (const char* name : {"b", "A", "a:q8_0", "b-Q8_0:q8", "b-Q8_0:", "../a", "c"})
    EXPECT_FALSE(catalog.find(name)) << name;
}

TEST_F(Catalog, SaysWhatTheFileSays) {
  model("a.gguf");
  const auto entry = ModelCatalog({}, directory_.path().string(), "").find("a");
  const auto embedded = model_entry("", "");
  ASSERT_TRUE(entry && embedded);
  EXPECT_EQ(embedded->name, "tiny-llada");
  EXPECT_EQ(entry->architecture, "llada");
  EXPECT_EQ(entry->bytes, static_cast<std::int64_t>(embedded_model().size()));
  EXPECT_EQ(entry->parameters, embedded->parameters);
  EXPECT_GT(entry->parameters, 100'000);
  EXPECT_GT(entry->context_length, 0);
  EXPECT_GT(entry->vocabulary, 0);
  EXPECT_GT(entry->modified, 1'700'000'000);
  EXPECT_FALSE(entry->chat_template.empty() || entry->type.empty());
}

TEST_F(Catalog, TheFirstIsFirstAndNotTwice) {
  model("a.gguf");
  model("b.gguf");
  const std::string path = (directory_.path() / "inner/../b.gguf").string();
  fs::create_directories(directory_.path() / "inner");
  EXPECT_EQ(names(model_entry("mine", path)), (ModelNames{"mine", "a"}));
  EXPECT_EQ(names(serve::ModelEntry{.name = "tiny-llada"}), (ModelNames{"tiny-llada", "a", "b"}));
}

TEST_F(Catalog, NoticesFilesThatComeAndGo) {
  model("a.gguf");
  ModelCatalog catalog({}, directory_.path().string(), "");
  EXPECT_EQ(catalog.list().size(), 1u);
  fs::rename(directory_.path() / "a.gguf", directory_.path() / "b.gguf");
  for (int i = 0; i < 1000 && !catalog.find("b"); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(catalog.find("b"));
  EXPECT_FALSE(catalog.find("a"));
}

TEST(ModelStem, IsTheNameWithoutPartsAndEnding) {
  EXPECT_EQ(model_stem("/x/a-00001-of-00003.gguf"), "a");
  EXPECT_EQ(model_stem("a.Q4_K_M.gguf"), "a.Q4_K_M");
  EXPECT_EQ(model_stem("/x/folder/"), "folder");
  EXPECT_EQ(model_stem("/x/folder"), "folder");
}

}  // namespace
}  // namespace dllm::app
