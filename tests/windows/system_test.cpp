// What base/os_* and base/os_windows promise, on Windows or under wine. Built for Windows alone (system_test.py).
//
//   dllm_system_test FOLDER          every check; one line for each that fails
//   dllm_system_test --sets          the instruction sets that run, a name a line
//   dllm_system_test --hold FILE     locks it, says "held", and waits for the end of its input
//   dllm_system_test --map FILE      maps it, says "mapped", waits for a line, then tells its first and last
//                                    byte, and whether the file is the "same" or has "changed"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "base/cache_directory.h"
#include "base/file_lock.h"
#include "base/input_file.h"
#include "base/instruction_set.h"
#include "base/os_files.h"
#include "base/os_memory.h"
#include "base/os_process.h"
#include "base/output_file.h"
#include "format/mapped_file.h"

namespace {

int failures = 0;

void check(bool held, const char* what, int line) {
  if (held) return;
  ++failures;
  printf("%d: %s (errno %d)\n", line, what, errno);
}
#define CHECK(condition) check(condition, #condition, __LINE__)

std::string content(const std::string& path) {
  const auto text = dllm::read_input(path);
  return text ? *text : "(unreadable)";
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  DIR* const listing = fd < 0 ? nullptr : ::fdopendir(fd);
  CHECK(listing != nullptr);
  if (listing == nullptr) return names;
  while (const dirent* const entry = ::readdir(listing)) names.insert(entry->d_name);
  ::closedir(listing);
  names.erase(".");
  names.erase("..");
  return names;
}

void check_status(const std::string& folder) {
  struct stat status{};
  CHECK(::stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode));
  CHECK(::stat((folder + "\\nothing").c_str(), &status) == -1 && errno == ENOENT);
  CHECK(::stat((folder + "/no/thing").c_str(), &status) == -1 && errno == ENOENT);
  CHECK(::open((folder + "/nothing").c_str(), O_RDONLY) == -1 && errno == ENOENT);
  CHECK(::open(folder.c_str(), O_WRONLY) == -1 && (errno == EISDIR || errno == EACCES));

  const std::string path = folder + "/模型 é.txt";
  CHECK(dllm::write_file(path, std::string_view("five!")).has_value());
  CHECK(::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 5);
  CHECK(::open(path.c_str(), O_RDONLY | O_DIRECTORY) == -1 && errno == ENOTDIR);
  CHECK(names_in(folder) == std::set<std::string>{"模型 é.txt"});
  const std::int64_t now = std::int64_t{::time(nullptr)} * 1'000'000'000, day = 86'400'000'000'000;
  CHECK(dllm::modified_at(status) > now - day && dllm::modified_at(status) < now + day);

  const int fd = ::open("/dev/null", O_WRONLY);
  CHECK(fd >= 0 && ::fstat(fd, &status) == 0 && dllm::is_null_device(status));
  ::close(fd);
  const int inside = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  struct statvfs space{};
  CHECK(::fstatvfs(inside, &space) == 0 && space.f_bavail > 0);
  CHECK(::unlinkat(inside, "模型 é.txt", 0) == 0 && names_in(folder).empty());
  ::close(inside);
}

/// Who has a file open or mapped keeps its content. Windows 10 replaces it all the same; wine 8 and other file systems
/// refuse that, and then nothing has changed.
void check_replacing_what_is_read(const std::string& path) {
  const auto map = dllm::MappedFile::open(path);
  CHECK(map.has_value() && content(path) == "old");
  if (!map) return;
  const bool replaced = dllm::write_file(path, std::string_view("newer")).has_value();
  CHECK(content(path) == (replaced ? "newer" : "old") && (*map)->replaced() == replaced);
  CHECK((*map)->state() == dllm::MappedFile::State::kSame);
  CHECK((*map)->bytes().size() == 3 && memcmp((*map)->bytes().data(), "old", 3) == 0);
}

void check_writing(const std::string& folder) {
  const std::string path = folder + "/target";
  CHECK(dllm::write_file(path, std::string_view("old")).has_value());
  CHECK(!dllm::write_file(path, std::string_view("no"), {.replace = false}).has_value() && content(path) == "old");
  check_replacing_what_is_read(path);
  CHECK(names_in(folder) == std::set<std::string>{"target"});
  CHECK(dllm::write_file(path, std::string_view("newer")).has_value() && content(path) == "newer");

  {
    auto unfinished = dllm::OutputFile::create(path);
    CHECK(unfinished.has_value() && unfinished->append("half", 4).has_value());
    CHECK(names_in(folder).size() == 2);
  }
  CHECK(names_in(folder) == std::set<std::string>{"target"} && content(path) == "newer");

  const int inside = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  CHECK(dllm::write_file(folder + "/other", std::string_view("other")).has_value());
  CHECK(dllm::rename_new(inside, "other", "target") == -1 && errno == EEXIST && content(path) == "newer");
  CHECK(dllm::rename_new(inside, "other", "fresh") == 0 && content(folder + "/fresh") == "other");
  CHECK(::linkat(inside, "fresh", inside, "second", 0) == 0);
  struct stat first{}, second{};
  CHECK(::fstatat(inside, "fresh", &first, 0) == 0 && ::fstatat(inside, "second", &second, 0) == 0);
  CHECK(first.st_ino == second.st_ino && first.st_dev == second.st_dev);
  for (const char* name : {"fresh", "second", "target"}) CHECK(::unlinkat(inside, name, 0) == 0);
  CHECK(names_in(folder).empty());
  ::close(inside);
}

void check_places(const std::string& folder) {
  const std::string path = folder + "/numbers";
  CHECK(dllm::write_file(path, std::string_view("0123456789")).has_value());
  const int fd = ::open(path.c_str(), O_RDWR);
  std::array<char, 4> bytes{};
  CHECK(::pread(fd, bytes.data(), 4, 3) == 4 && memcmp(bytes.data(), "3456", 4) == 0);
  CHECK(::pread(fd, bytes.data(), 4, 8) == 2 && ::pread(fd, bytes.data(), 4, 10) == 0);
  CHECK(::pwrite(fd, "x", 1, 12) == 1 && ::fsync(fd) == 0);
  struct stat status{};
  CHECK(::fstat(fd, &status) == 0 && status.st_size == 13);
  ::close(fd);
  CHECK(content(path) == std::string("0123456789\0\0x", 13));
  const auto map = dllm::MappedFile::open(path);
  CHECK(map.has_value() && (*map)->bytes().size() == 13 && (*map)->bytes()[12] == std::byte{'x'});
  CHECK(::unlink(path.c_str()) == 0);
}

void check_locks(const std::string& folder) {
  const std::string path = folder + "/lock";
  {
    const auto held = dllm::FileLock::try_take(path);
    CHECK(held.has_value() && held->has_value());
    const auto second = dllm::FileLock::try_take(path);
    CHECK(second.has_value() && !second->has_value());
    CHECK(content(path).empty());  // the lock keeps nobody from reading
  }
  const auto again = dllm::FileLock::try_take(path);
  CHECK(again.has_value() && again->has_value());
}

void check_memory() {
  constexpr std::size_t kMost = std::size_t{1} << 40, kBytes = 1 << 16;
  auto* const most = static_cast<unsigned char*>(dllm::map_memory(kMost, /*reserved=*/true));
  CHECK(most != nullptr);
  if (most != nullptr) {
    most[kMost / 2] = 7;
    CHECK(most[kMost / 2] == 7 && most[kMost / 2 + 1] == 0 && most[kMost - 1] == 0);
    dllm::unmap_memory(most, kMost);
  }
  auto* memory = static_cast<unsigned char*>(dllm::map_memory(kBytes));
  memory[kBytes - 1] = 2;
  memory = static_cast<unsigned char*>(dllm::grow_memory(memory, kBytes, 16 * kBytes));
  CHECK(memory[0] == 0 && memory[kBytes - 1] == 2 && memory[16 * kBytes - 1] == 0);
  dllm::unmap_memory(memory, 16 * kBytes);
  CHECK(dllm::available_memory().value_or(0) > 0 && dllm::memory_size() >= *dllm::available_memory());
  CHECK(dllm::peak_resident_memory() > 0);
}

void check_process() {
  std::array<unsigned char, 700> bytes{}, zeros{};
  CHECK(dllm::random_bytes(bytes.data(), bytes.size()) && memcmp(bytes.data() + 668, zeros.data(), 32) != 0);
  CHECK(dllm::allowed_processors() >= 1 && dllm::host_system().name == "Windows" && !dllm::processor_name().empty());
  CHECK(dllm::file_name_at("C:\\a/b\\model.gguf") == 7 && dllm::file_name_at("C:model.gguf") == 2);
  CHECK(!dllm::user_cache_folder().empty() && !dllm::cache_directory().empty());

  int ends[2] = {-1, -1};
  CHECK(dllm::open_pipe(ends, /*blocking=*/true));
  pollfd source{ends[0], POLLIN, 0};
  CHECK(::poll(&source, 1, 0) == 0 && ::write(ends[1], "x\n", 2) == 2 && ::poll(&source, 1, 1000) == 1);
  CHECK(::read(ends[0], bytes.data(), 2) == 2 && bytes[0] == 'x' && bytes[1] == '\n');
  ::close(ends[1]);
  CHECK(::poll(&source, 1, 1000) == 1 && ::read(ends[0], bytes.data(), 1) == 0);
  ::close(ends[0]);

  const std::string_view text = "aababaabaab";
  for (const std::string_view part : {"aab", "abaab", "baabaab", "aababaabaab", "abb", "b", ""}) {
    const void* const found = ::memmem(text.data(), text.size(), part.data(), part.size());
    const std::size_t at = text.find(part);
    CHECK(found == (at == text.npos ? nullptr : text.data() + at));
  }
}

int tell_sets() {
  using enum dllm::InstructionSet;
  constexpr std::pair<dllm::InstructionSet, const char*> kSets[] = {{kAvx2, "avx2"},
                                                                    {kAvxVnni, "avxvnni"},
                                                                    {kAvx512, "avx512"},
                                                                    {kAvx512Vnni, "avx512vnni"},
                                                                    {kAvx512Bf16, "avx512bf16"}};
  for (const auto& [set, name] : kSets)
    if (dllm::runs(set)) printf("%s\n", name);
  return 0;
}

void say(const char* word) {
  printf("%s\n", word);
  fflush(stdout);
}

int hold(const std::string& path) {
  const auto held = dllm::FileLock::try_take(path);
  say(held && *held ? "held" : "refused");
  while (getchar() != EOF) {
  }
  return 0;
}

int watch(const std::string& path) {
  const auto map = dllm::MappedFile::open(path);
  if (!map || (*map)->bytes().empty()) return 1;
  say("mapped");
  while (getchar() != '\n') {
  }
  const int first = static_cast<int>((*map)->bytes().front()), last = static_cast<int>((*map)->bytes().back());
  printf("%d %d %s\n", first, last, (*map)->state() == dllm::MappedFile::State::kSame ? "same" : "changed");
  return 0;
}

}  // namespace

int main(int count, char** words) {
  dllm::prepare_standard_streams();
  const std::vector<std::string> told(words + 1, words + count);
  if (told.size() == 1 && told[0] == "--sets") return tell_sets();
  if (told.size() == 2 && told[0] == "--hold") return hold(told[1]);
  if (told.size() == 2 && told[0] == "--map") return watch(told[1]);
  if (told.size() != 1) return 2;
  check_status(told[0]);
  check_writing(told[0]);
  check_places(told[0]);
  check_memory();
  check_process();
  check_locks(told[0]);
  printf("%d failed\n", failures);
  return failures > 0 ? 1 : 0;
}
