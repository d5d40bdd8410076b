#include "format/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "format/testing/test_files.h"

namespace dllm {
namespace {

TEST(MappedFile, MapsTheWholeFile) {
  const test::TempDir dir;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{10000}}) {
    const std::string content(size, 'x');
    test::write_file(dir / "file", content);
    const auto file = MappedFile::open(dir / "file");
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_TRUE(std::ranges::equal((*file)->bytes(), test::as_bytes(content))) << size;
    EXPECT_EQ((*file)->name(), dir / "file");
  }
}

TEST(MappedFile, WrapsBytesOfOthers) {
  const std::string content = "bytes";
  const auto file = MappedFile::wrap(test::as_bytes(content), "name");
  EXPECT_EQ(file->bytes().data(), test::as_bytes(content).data());
  EXPECT_EQ(file->bytes().size(), 5u);
  EXPECT_EQ(file->name(), "name");
}

TEST(MappedFile, DroppedPagesAreReadAgain) {
  const test::TempDir dir;
  std::string content(100000, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7);
  test::write_file(dir / "file", content);
  const auto file = MappedFile::open(dir / "file");
  ASSERT_TRUE(file);
  EXPECT_TRUE((*file)->mapped());
  EXPECT_FALSE(MappedFile::wrap(test::as_bytes(content), "name")->mapped());
  for (std::size_t begin : {0u, 1u, 4095u, 4096u, 99999u}) {
    MappedFile::drop_pages((*file)->bytes().subspan(begin));
    EXPECT_TRUE(std::ranges::equal((*file)->bytes(), test::as_bytes(content)));
  }
  MappedFile::drop_pages({});
}

TEST(MappedFile, ATruncatedFileIsAnErrorNotASignal) {
  const test::TempDir dir;
  const std::string content(1000000, 'x');
  test::write_file(dir / "file", content);
  test::write_file(dir / "other", content);
  const auto file = MappedFile::open(dir / "file"), other = MappedFile::open(dir / "other");
  ASSERT_TRUE(file && other && (*file)->check());
  ASSERT_EQ(::truncate((dir / "file").c_str(), 5000), 0);
  std::atomic<int> zeroes{0};
  std::vector<std::thread> readers;
  for (std::size_t from : {0u, 300000u, 600000u, 999999u})
    readers.emplace_back([&, from] {
      for (std::size_t i = from; i < content.size(); i += 997) zeroes += (*file)->bytes()[i] == std::byte{0} ? 1 : 0;
    });
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(zeroes, 0);
  const auto changed = (*file)->check();
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code, ErrorCode::kIo);
  EXPECT_EQ(changed.error().what, "the file changed while it was read");
  EXPECT_TRUE((*other)->check());
  EXPECT_TRUE(std::ranges::equal((*other)->bytes(), test::as_bytes(content)));
}

TEST(MappedFile, ARewrittenFileIsFoundAReplacedOneKept) {
  const test::TempDir dir;
  test::write_file(dir / "file", "aaaa");
  const auto file = MappedFile::open(dir / "file");
  ASSERT_TRUE(file);
  test::write_file(dir / "new", "bbbb");
  std::filesystem::rename(dir / "new", dir / "file");
  EXPECT_TRUE((*file)->check());
  EXPECT_TRUE(std::ranges::equal((*file)->bytes(), test::as_bytes("aaaa")));
  const auto next = MappedFile::open(dir / "file");
  ASSERT_TRUE(next);
  EXPECT_FALSE((*file)->identity() == (*next)->identity());
  std::fstream(dir / "file", std::ios::in | std::ios::out | std::ios::binary) << "cccc";
  const timespec times[2] = {{1, 0}, {1, 0}};  // the file system's clock may be coarser than this test is fast
  ASSERT_EQ(::utimensat(AT_FDCWD, (dir / "file").c_str(), times, 0), 0);
  EXPECT_FALSE((*next)->check());
  const std::shared_ptr<const MappedFile> files[] = {*file, *next};
  EXPECT_FALSE(check_unchanged(files));
  EXPECT_TRUE(MappedFile::wrap(test::as_bytes("x"), "x")->check());
}

TEST(MappedFile, OtherFaultsEndTheProcess) {
#ifdef DLLM_SANITIZED
  GTEST_SKIP() << "the sanitizer reports the fault in its own way";
#endif
  const test::TempDir dir;
  EXPECT_EXIT(
      {
        test::write_file(dir / "file", "x");
        const auto file = MappedFile::open(dir / "file");
        ::raise(SIGBUS);
        ::_exit(file ? 0 : 1);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

TEST(MappedFile, ReportsWhatCannotBeMapped) {
  const test::TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  for (const std::string& path : {dir / "missing", dir / "", dir / "pipe", std::string()}) {
    const auto file = MappedFile::open(path);
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.error().code, ErrorCode::kIo);
    EXPECT_EQ(file.error().where, path);
  }
}

}  // namespace
}  // namespace dllm
