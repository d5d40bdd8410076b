"""What goes into a tarball (tarball.py): what the linker took, whose it is, and that the same files give the same bytes;
and what a portable program is linked with (glibc_stubs.py).

    python3 tarball_test.py
"""

import gzip
import hashlib
import io
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import components
import glibc_stubs
import tarball

MAP = """Archive member included to satisfy reference by file (symbol)

src/app/libdllm_app.a(run.cpp.o)
                              CMakeFiles/dllm.dir/main.cpp.o (run)
/home/x/build/static-libraries/lib/libcurl.a(easy.o)
                              src/hub/libdllm_hub.a(http.cpp.o) (curl_easy_init)
/usr/lib/x86_64-linux-gnu/libcrypto.a(libcrypto-lib-sha256.o)
                              src/hub/libdllm_hub.a(checksum.cpp.o) (SHA256_Init)

Discarded input sections

 .text          0x0 /usr/lib/x86_64-linux-gnu/libunused.a(unused.o)

LOAD /usr/lib/gcc/x86_64-linux-gnu/12/crtbeginS.o
LOAD /usr/lib/x86_64-linux-gnu/libunused.a
"""


class Contents(unittest.TestCase):
    def test_the_map_names_what_was_taken_and_nothing_else(self):
        self.assertEqual(components.archives_of(MAP),
                         {"src/app/libdllm_app.a", "/home/x/build/static-libraries/lib/libcurl.a",
                          "/usr/lib/x86_64-linux-gnu/libcrypto.a", "/usr/lib/gcc/x86_64-linux-gnu/12/crtbeginS.o"})
        with self.assertRaisesRegex(components.Failure, "lists no archives"):
            components.archives_of("LOAD x.a\n")

    def test_every_part_needs_a_known_licence(self):
        self.assertEqual(components.licence_of("curl"), "curl")
        with self.assertRaisesRegex(components.Failure, "licence of readline"):
            components.licence_of("readline")

    @unittest.skipIf(shutil.which("dpkg") is None, "not a Debian system")
    def test_files_without_a_package_are_refused(self):
        with tempfile.NamedTemporaryFile(suffix=".a") as file:
            with self.assertRaisesRegex(components.Failure, "no package owns it"):
                components.package_of(file.name)
        self.assertEqual(components.package_of("/bin/dash"), ("dash", components.HERE))

    @unittest.skipIf(shutil.which("dpkg") is None, "not a Debian system")
    def test_packages_of_another_processor_are_in_a_folder(self):
        """Files there are looked up in its list; the compiler's own are this machine's."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            place = components.Place(str(root), (f"--admindir={root}/var/lib/dpkg",), root / "libraries")
            info, library = root / "var/lib/dpkg/info", root / "usr/lib/libssl.a"
            for each in (info, library.parent, root / "usr/share/doc/libssl-dev"):
                each.mkdir(parents=True)
            library.touch()
            (root / "usr/share/doc/libssl-dev/copyright").write_text("notice")
            (info / "libfmt-dev.list").write_text("/.\n")
            (info / "libssl-dev.list").write_text("/.\n/usr\n/usr/lib\n/usr/lib/libssl.a\n")
            state = "Status: install ok installed\nMaintainer: x\nArchitecture: all\nDescription: x\n"
            (info.parent / "status").write_text(f"Package: libssl-dev\n{state}Source: openssl (9.8)\nVersion: 9.8+b1\n\n"
                                                f"Package: libfmt-dev\n{state}Source: fmtlib\nVersion: 9.1\n\n")
            self.assertEqual(components.package_of(str(library), place), ("libssl-dev", place))
            self.assertEqual(components.package_of("/bin/dash", place), ("dash", components.HERE))
            with self.assertRaisesRegex(components.Failure, "no package owns it"):
                components.package_of(str(root / "usr/lib/other.a"), place)
            head = f"Archive member included x\n{library}(a.o)\n x\n{root}/libraries/lib/libfmt.a(b.o)\n x\n\nDiscarded\n"
            found = components.components_of(head, root, (), place)
            self.assertEqual(found, [components.Component("fmtlib", "9.1", ("libfmt-dev",), "MIT"),
                                     components.Component("openssl", "9.8", ("libssl-dev",), "Apache-2.0")])
            self.assertEqual(components.notice_of(found[1], place), b"notice")

    def test_the_processor_is_the_files(self):
        with tempfile.NamedTemporaryFile() as file:
            for number, name in ((62, "x86_64"), (183, "aarch64")):
                header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + (2).to_bytes(2, "little") + number.to_bytes(2, "little")
                file.seek(0)
                file.write(header.ljust(64, b"\0"))
                file.flush()
                self.assertEqual(tarball.machine_of(pathlib.Path(file.name)), name)
            file.seek(18)
            file.write(b"\x08")
            file.flush()
            with self.assertRaisesRegex(components.Failure, "for no processor"):
                tarball.machine_of(pathlib.Path(file.name))

    def test_dynamic_programs_are_refused(self):
        with self.assertRaisesRegex(components.Failure, "linked dynamically"):
            tarball.form_of(pathlib.Path(shutil.which("sh")).resolve())

    def test_the_same_files_give_the_same_bytes(self):
        digests = set()
        for order, mode in (("ab", 0o600), ("ba", 0o664)):
            with tempfile.TemporaryDirectory() as folder:
                stage = pathlib.Path(folder)
                (stage / "bin").mkdir(mode=0o700)
                for name in order:
                    (stage / "bin" / name).write_text(name)
                    os.chmod(stage / "bin" / name, mode)
                    if os.geteuid() == 0 and order == "ba":
                        os.chown(stage / "bin" / name, 65534, 65534)
                (stage / "bin" / "dllm").write_text("program")
                os.chmod(stage / "bin" / "dllm", 0o700 | (mode & 0o77))
                packed = tarball.contents(stage, "dllm-1", 1234)
            digests.add(hashlib.sha256(packed).hexdigest())
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                members = {m.name: m for m in archive.getmembers()}
        self.assertEqual(len(digests), 1)
        self.assertEqual(list(members), ["dllm-1", "dllm-1/bin", "dllm-1/bin/a", "dllm-1/bin/b", "dllm-1/bin/dllm"])
        self.assertEqual({m.mtime for m in members.values()}, {1234})
        self.assertEqual({(m.uname, m.uid, m.gid) for m in members.values()}, {("root", 0, 0)})
        self.assertEqual((members["dllm-1/bin/a"].mode, members["dllm-1/bin/dllm"].mode), (0o644, 0o755))

    def test_an_archive_is_packed_twice_and_without_a_time(self):
        packed = tarball.pack(b"content" * 100)
        self.assertEqual(sorted(packed), [".tar.gz", ".tar.xz"])
        self.assertEqual(gzip.decompress(packed[".tar.gz"]), lzma.decompress(packed[".tar.xz"]))
        self.assertEqual(packed[".tar.gz"][4:8], bytes(4))


# Of a library: what stayed, what moved or was replaced later, what is too young, what was withdrawn before.
SYMBOLS = """
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND absent@GLIBC_2.2.5 (40)
     2: 0000000000000010     9 FUNC    GLOBAL DEFAULT   16 read@@GLIBC_2.2.5
     3: 0000000000000020     9 FUNC    GLOBAL DEFAULT   16 pthread_create@GLIBC_2.2.5
     4: 0000000000000020     9 FUNC    GLOBAL DEFAULT   16 pthread_create@@GLIBC_2.34
     5: 0000000000000030     9 FUNC    GLOBAL DEFAULT   16 memcpy@GLIBC_2.2.5
     6: 0000000000000040     9 IFUNC   GLOBAL DEFAULT   16 memcpy@@GLIBC_2.14
     7: 0000000000000050     9 FUNC    GLOBAL DEFAULT   16 fstat@@GLIBC_2.33
     8: 0000000000000060     9 FUNC    GLOBAL DEFAULT   16 xdr_int@GLIBC_2.2.5
     9: 0000000000000070     8 OBJECT  GLOBAL DEFAULT   20 stdout@@GLIBC_2.2.5
    10: 0000000000000080     9 FUNC    GLOBAL DEFAULT   16 inner@@GLIBC_PRIVATE
    11: 0000000000000000     0 OBJECT  GLOBAL DEFAULT  ABS GLIBC_2.34
    12: 0000000000000090     9 FUNC    GLOBAL DEFAULT   16 exp@GLIBC_2.2.5
    13: 0000000000000090     9 FUNC    GLOBAL DEFAULT   16 exp@@GLIBC_2.29
"""


class Stubs(unittest.TestCase):
    def test_the_newest_version_up_to_the_one_wanted(self):
        kept, moved = glibc_stubs.chosen(glibc_stubs.symbols_of(SYMBOLS))
        self.assertEqual({one.name: one.version for one in kept},
                         {"read": "GLIBC_2.2.5", "pthread_create": "GLIBC_2.2.5", "memcpy": "GLIBC_2.14", "stdout": "GLIBC_2.2.5",
                          "exp": "GLIBC_2.2.5"})
        self.assertEqual(moved, {"pthread_create", "exp"})
        libraries = glibc_stubs.libraries_of(kept, moved)
        self.assertEqual({one.name for one in libraries["libpthread.so.0"]}, {"pthread_create"})
        self.assertIn("exp", {one.name for one in libraries["libc.so.6"]})
        later, _ = glibc_stubs.chosen(glibc_stubs.symbols_of(SYMBOLS), (2, 34))
        self.assertEqual(next(one.version for one in later if one.name == "pthread_create"), "GLIBC_2.34")

    @unittest.skipIf(shutil.which("g++") is None or shutil.which("readelf") is None, "no compiler")
    def test_a_program_asks_for_nothing_younger_and_runs(self):
        """Constructors, exceptions, threads, waiting, files and random numbers are what packaging/glibc replaces."""
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            glibc_stubs.make(folder)
            (folder / "program.cpp").write_text(PROGRAM)
            subprocess.run(["g++", "-std=c++20", "-O1", "-fPIC", folder / "program.cpp", "-o", folder / "program", f"-L{folder}",
                            "-static-libstdc++", "-static-libgcc"], check=True)
            self.assertEqual(tarball.form_of(folder / "program"), "portable")
            told = subprocess.run([folder / "program"], capture_output=True, text=True, check=False)
            self.assertEqual((told.returncode, told.stdout), (0, "begun caught 1 waited 1 1\nended\n"), told.stderr)
            # Before glibc 2.34 constructors were the program's task: its own start must be inside. It hides all from drivers.
            listing = subprocess.run(["nm", folder / "program"], capture_output=True, text=True, check=True).stdout
            self.assertRegex(listing, r"[0-9a-f]+ [Tt] __libc_start_main\n")
            self.assertRegex(listing, r"U __libc_start_main@GLIBC_2\.")
            exported = subprocess.run(["nm", "-D", "--defined-only", folder / "program"], capture_output=True, text=True, check=True)
            self.assertNotRegex(exported.stdout, r" (l?f?stat(at|64)?|arc4random|_dl_find_object|pthread_cond_clockwait)\b")
            # A shared library has no start.
            (folder / "library.cpp").write_text(PROGRAM.replace("int main(int, char** arguments)", "int f(char** arguments)"))
            subprocess.run(["g++", "-std=c++20", "-O1", "-fPIC", "-shared", folder / "library.cpp", "-o", folder / "library.so",
                            f"-L{folder}", "-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL"], check=True)
            self.assertEqual(tarball.form_of(folder / "library.so"), "portable")
            (folder / "young.cpp").write_text("#include <stdlib.h>\nint main() { return reallocarray(nullptr, 1, 1) == nullptr; }\n")
            (folder / "younger.cpp").write_text("extern \"C\" int close_range(unsigned, unsigned, int);\n"
                                                "int main() { return close_range(9, 9, 0); }\n")
            for name, works in (("young", True), ("younger", False)):  # of 2.26 and 2.34
                linked = subprocess.run(["g++", folder / f"{name}.cpp", "-o", folder / name, f"-L{folder}", "-static-libgcc"],
                                        capture_output=True, text=True, check=False)
                self.assertEqual(linked.returncode == 0, works, linked.stderr)


    @unittest.skipIf(shutil.which("g++") is None, "no compiler")
    def test_waits_where_the_library_has_no_such_function(self):
        """packaging/glibc's own pthread_cond_clockwait(), which systems with glibc 2.30 never reach."""
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            (folder / "wait.cpp").write_text("#include <dlfcn.h>\n#define dlsym(handle, name) static_cast<void*>(nullptr)\n"
                                             f'#include "{glibc_stubs.COMPAT}"\n' + WAIT)
            glibc_stubs.make(folder)
            subprocess.run(["g++", "-std=c++20", "-O1", "-fPIC", folder / "wait.cpp", "-o", folder / "wait", f"-L{folder}",
                            "-static-libstdc++", "-static-libgcc"], check=True)
            told = subprocess.run([folder / "wait"], capture_output=True, text=True, check=False)
            self.assertEqual((told.returncode, told.stdout), (0, "late woken past\n"), told.stderr)


WAIT = """
#include <stdio.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static bool told = false;
static timespec after(long milliseconds) {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC, &at);
  const long sum = at.tv_nsec + (milliseconds + 1000) * 1000000;
  return {at.tv_sec - 1 + sum / 1000000000, sum % 1000000000};
}
static bool earlier(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}
static void* wake(void*) {
  pthread_mutex_lock(&mutex);
  told = true;
  pthread_cond_signal(&condition);
  pthread_mutex_unlock(&mutex);
  return nullptr;
}
int main() {
  pthread_mutex_lock(&mutex);
  // Deadlines in every part of a second: the sum of nanoseconds overflows in one direction or the other.
  for (int i = 0; i < 12; ++i) {
    const timespec until = after(90);
    int result = 0;
    do result = pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &until);
    while (result == 0);
    if (result != ETIMEDOUT || earlier(after(0), until) || !earlier(after(0), timespec{until.tv_sec + 30, until.tv_nsec})) return 1;
  }
  printf("late ");
  pthread_t thread;
  if (pthread_create(&thread, nullptr, wake, nullptr) != 0) return 2;
  const timespec far = after(600000);
  while (!told)
    if (pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &far) != 0) return 3;
  printf("woken ");
  pthread_mutex_unlock(&mutex);
  pthread_join(thread, nullptr);
  pthread_mutex_lock(&mutex);
  const timespec past = after(-500);
  if (pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &past) != ETIMEDOUT) return 4;
  printf("past\\n");
}
"""

PROGRAM = """
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <iostream>
#include <random>
#include <stdexcept>
#include <thread>
struct Whole {
  Whole() { std::cout << "begun "; }
  ~Whole() { std::cout << "ended" << std::endl; }
} whole;
int main(int, char** arguments) {
  std::thread([] {
    try {
      throw std::runtime_error("caught");
    } catch (const std::exception& failure) {
      std::cout << failure.what() << " ";
    }
  }).join();
  std::cout << (std::filesystem::file_size(arguments[0]) > 1000) << " waited ";
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  const auto begin = std::chrono::steady_clock::now();
  const bool late = never.wait_for(lock, std::chrono::milliseconds(30)) == std::cv_status::timeout;
  std::cout << (late && std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(30)) << " ";
  std::random_device random;
  std::cout << (random() != random() || random() != random()) << std::endl;
}
"""


if __name__ == "__main__":
    unittest.main()
