#include "hub/cached_models.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/file_descriptor.h"
#include "base/file_lock.h"
#include "base/testing/temp_dir.h"
#include "hub/cache.h"

namespace dllm::hub {
namespace {

namespace fs = std::filesystem;

class CachedModels : public ::testing::Test {
 protected:
  std::string root() const { return directory_ / "hub"; }
  fs::path folder(const std::string& name) const { return fs::path(root()) / name; }

  void write(const fs::path& path, std::size_t bytes) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << std::string(bytes, 'x');
  }

  /// A file of a snapshot, under a digest made of its name.
  fs::path add(const std::string& repository, const std::string& file, std::size_t bytes,
               const std::string& commit = "c1", std::string etag = "") {
    const RepositoryCache cache(root(), repository);
    if (etag.empty()) etag = "e-" + fs::path(file).filename().string();
    write(cache.blob(etag), bytes);
    EXPECT_TRUE(cache.link(commit, file, etag));
    EXPECT_TRUE(cache.set_commit("main", commit));
    return cache.blob(etag);
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const CachedModel& one : cached_models(root())) all.push_back(one.name);
    return all;
  }

  test::TempDir directory_;
};

using Names = std::vector<std::string>;

TEST_F(CachedModels, AreNamedAsPullNamesThem) {
  EXPECT_EQ(names(), Names{});
  add("o/one", "a-Q8_0.gguf", 10);
  add("o/one", "README.md", 5);
  add("o/two", "a.b-Q4_K_M.gguf", 1);
  add("o/two", "a.b-Q8_0.gguf", 2);
  add("o/two", "a.b-mmproj-Q8_0x.gguf", 2);
  add("o/split", "s-Q4_0-00001-of-00002.gguf", 3);
  add("o/split", "s-Q4_0-00002-of-00002.gguf", 4);
  add("o/split", "s-F16.gguf", 4);
  add("o/folder", "config.json", 1);
  add("o/folder", "model.safetensors", 7);
  add("lone", "x.gguf", 1);
  write(folder("models--o--other/refs/main"), 0);
  write(folder("datasets--o--d/refs/main"), 0);
  EXPECT_EQ(names(), (Names{"lone", "o/folder", "o/one", "o/other", "o/split:F16", "o/split:Q4_0", "o/two:Q4_K_M",
                            "o/two:Q8_0"}));
  const auto all = cached_models(root());
  EXPECT_EQ(all[1].bytes, 8u);
  EXPECT_TRUE(all[1].path.ends_with("snapshots/c1"));
  EXPECT_EQ(all[2].bytes, 10u);
  EXPECT_TRUE(all[3].path.empty());
  EXPECT_EQ(all[5].bytes, 7u);
  EXPECT_TRUE(all[5].path.ends_with("snapshots/c1/s-Q4_0-00001-of-00002.gguf"));
}

TEST_F(CachedModels, OneOfSeveralIsRemovedWithItsFilesInAllRevisions) {
  const fs::path old = add("o/two", "a-Q8_0.gguf", 20, "c0", "old");
  const fs::path shared = add("o/two", "a-Q4_0.gguf", 7, "c0");
  const fs::path fresh = add("o/two", "a-Q8_0.gguf", 30, "c1", "new");
  add("o/two", "a-Q4_0.gguf", 7, "c1");
  const auto removed = remove_model(root(), "o/two:Q8_0");
  ASSERT_TRUE(removed) << removed.error().message();
  EXPECT_EQ(removed->bytes, 50u);
  EXPECT_FALSE(fs::exists(old) || fs::exists(fresh));
  EXPECT_TRUE(fs::exists(shared));
  EXPECT_EQ(names(), Names{"o/two"});
}

TEST_F(CachedModels, TheLastOneTakesTheRepositoryWithIt) {
  add("o/one", "a.gguf", 20);
  add("o/one", "README.md", 5);
  add("o/other", "b.gguf", 1);
  const auto removed = remove_model(root(), "o/one");
  ASSERT_TRUE(removed);
  EXPECT_GE(removed->bytes, 25u);
  EXPECT_FALSE(fs::exists(folder("models--o--one")));
  EXPECT_EQ(names(), Names{"o/other"});
}

TEST_F(CachedModels, OnlyExactNamesAreRemoved) {
  add("o/two", "a-Q8_0.gguf", 1);
  add("o/two", "a-Q4_0.gguf", 1);
  for (const char* name : {"o/two", "o/two:q8_0", "two", "o/two:Q8", "o/t*", "", "../two", "o/two:Q8_0 "}) {
    const auto removed = remove_model(root(), name);
    ASSERT_FALSE(removed) << name;
    EXPECT_EQ(removed.error().code, ErrorCode::kUsage);
    EXPECT_NE(removed.error().hint.find("o/two:Q8_0"), std::string::npos);
  }
  EXPECT_EQ(names().size(), 2u);
}

TEST_F(CachedModels, ABlobThatAnotherFileNeedsStays) {
  add("o/two", "a-Q8_0.gguf", 9, "c1", "same");
  const fs::path blob = add("o/two", "b-Q8_0x.gguf", 9, "c1", "same");
  add("o/two", "c-Q4_0.gguf", 9);
  const auto removed = remove_model(root(), "o/two:Q8_0");
  ASSERT_TRUE(removed);
  EXPECT_EQ(removed->bytes, 0u);
  EXPECT_TRUE(fs::exists(blob));
}

TEST_F(CachedModels, WhatALinkOutsideLeadsToStays) {
  const fs::path mine = directory_.path() / "mine.gguf";
  write(mine, 9);
  add("o/two", "a-Q4_0.gguf", 9);
  fs::create_symlink(mine, folder("models--o--two/snapshots/c1/b-Q8_0.gguf"));
  ASSERT_TRUE(remove_model(root(), "o/two:Q8_0"));
  EXPECT_TRUE(fs::exists(mine));
  EXPECT_EQ(names(), Names{"o/two"});
}

TEST_F(CachedModels, ABlobWithAHardLinkGoesWithIt) {
  add("o/two", "a-Q4_0.gguf", 9);
  const fs::path blob = folder("models--o--two/blobs/linked"), needed = folder("models--o--two/blobs/needed");
  const fs::path snapshot = folder("models--o--two/snapshots/c1");
  write(blob, 20);
  write(needed, 30);
  fs::create_hard_link(blob, snapshot / "b-Q8_0.gguf");
  fs::create_hard_link(needed, snapshot / "c-Q5_0.gguf");
  const auto removed = remove_model(root(), "o/two:Q8_0");
  ASSERT_TRUE(removed);
  EXPECT_EQ(removed->bytes, 20u);
  EXPECT_FALSE(fs::exists(blob));
  EXPECT_TRUE(fs::exists(needed));
  EXPECT_EQ(names(), (Names{"o/two:Q4_0", "o/two:Q5_0"}));
  ASSERT_TRUE(remove_model(root(), "o/two:Q4_0"));
  const auto rest = remove_model(root(), names().front());
  ASSERT_TRUE(rest);
  EXPECT_GE(rest->bytes, 30u);  // and a branch's commit
  EXPECT_LT(rest->bytes, 60u);
}

TEST_F(CachedModels, WhatIsMappedIsNotRemoved) {
  const fs::path blob = add("o/one", "a.gguf", 4096);
  {
    const FileDescriptor file(::open(blob.c_str(), O_RDONLY));
    void* map = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file.get(), 0);
    ASSERT_NE(map, MAP_FAILED);
    EXPECT_EQ(users_of({blob.string()}), std::vector<int>{::getpid()});
    const auto removed = remove_model(root(), "o/one");
    ::munmap(map, 4096);
    ASSERT_FALSE(removed);
    EXPECT_NE(removed.error().what.find(std::to_string(::getpid())), std::string::npos) << removed.error().what;
  }
  EXPECT_TRUE(fs::exists(blob));
  EXPECT_TRUE(remove_model(root(), "o/one"));
}

TEST_F(CachedModels, WhatIsBeingDownloadedIsNotRemoved) {
  add("o/one", "a.gguf", 1);
  const RepositoryCache cache(root(), "o/one");
  fs::create_directories(fs::path(cache.lock("e-a.gguf")).parent_path());
  write(cache.incomplete("e-b.gguf"), 3);
  {
    const auto lock = FileLock::try_take(cache.lock("e-b.gguf"));
    ASSERT_TRUE(lock && *lock);
    const auto removed = remove_model(root(), "o/one");
    ASSERT_FALSE(removed);
    EXPECT_NE(removed.error().what.find("downloaded"), std::string::npos);
  }
  EXPECT_TRUE(remove_model(root(), "o/one"));
  EXPECT_FALSE(fs::exists(folder(".locks/models--o--one")));
}

}  // namespace
}  // namespace dllm::hub
