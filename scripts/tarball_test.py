"""What goes into a tarball (tarball.py): what the linker took, whose it is, and that the same files give the same bytes.

    python3 tarball_test.py
"""

import hashlib
import io
import os
import pathlib
import shutil
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
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
        self.assertEqual(tarball.archives_of(MAP),
                         {"src/app/libdllm_app.a", "/home/x/build/static-libraries/lib/libcurl.a",
                          "/usr/lib/x86_64-linux-gnu/libcrypto.a", "/usr/lib/gcc/x86_64-linux-gnu/12/crtbeginS.o"})
        with self.assertRaisesRegex(tarball.Failure, "lists no archives"):
            tarball.archives_of("LOAD x.a\n")

    def test_every_part_needs_a_known_licence(self):
        self.assertEqual(tarball.licence_of("curl"), "curl")
        with self.assertRaisesRegex(tarball.Failure, "licence of readline"):
            tarball.licence_of("readline")

    @unittest.skipIf(shutil.which("dpkg") is None, "not a Debian system")
    def test_files_without_a_package_are_refused(self):
        with tempfile.NamedTemporaryFile(suffix=".a") as file:
            with self.assertRaisesRegex(tarball.Failure, "no package owns it"):
                tarball.package_of(file.name)
        self.assertEqual(tarball.package_of("/bin/dash"), "dash")

    def test_dynamic_programs_are_refused(self):
        with self.assertRaisesRegex(tarball.Failure, "linked dynamically"):
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


if __name__ == "__main__":
    unittest.main()
