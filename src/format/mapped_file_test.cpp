#include "format/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "format/test_files.h"

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
