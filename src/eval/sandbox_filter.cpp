#include "eval/sandbox_filter.h"

#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>

#include "base/system_error.h"

namespace dllm::sandbox {
namespace {

/// Forbidden system calls: those that create or join namespaces and mounts, trace or change other processes, or reach
/// kernel devices that no evaluated program needs; and those whose memory belongs to no process, so that no limit
/// counts it. All others are allowed, since interpreters differ.
constexpr const char* kForbidden[] = {"unshare",
                                      "setns",
                                      "mount",
                                      "umount2",
                                      "pivot_root",
                                      "chroot",
                                      "open_tree",
                                      "move_mount",
                                      "fsopen",
                                      "fsconfig",
                                      "fsmount",
                                      "fspick",
                                      "mount_setattr",
                                      "ptrace",
                                      "process_vm_readv",
                                      "process_vm_writev",
                                      "process_madvise",
                                      "kcmp",
                                      "pidfd_getfd",
                                      "bpf",
                                      "perf_event_open",
                                      "userfaultfd",
                                      "io_uring_setup",
                                      "io_uring_enter",
                                      "io_uring_register",
                                      "keyctl",
                                      "add_key",
                                      "request_key",
                                      "kexec_load",
                                      "kexec_file_load",
                                      "init_module",
                                      "finit_module",
                                      "delete_module",
                                      "reboot",
                                      "swapon",
                                      "swapoff",
                                      "acct",
                                      "syslog",
                                      "quotactl",
                                      "name_to_handle_at",
                                      "open_by_handle_at",
                                      "settimeofday",
                                      "clock_settime",
                                      "adjtimex",
                                      "clock_adjtime",
                                      "personality",
                                      "fanotify_init",
                                      "lookup_dcookie",
                                      "mknod",
                                      "mknodat",
                                      "iopl",
                                      "ioperm",
                                      "vhangup",
                                      "sethostname",
                                      "setdomainname",
                                      "nfsservctl",
                                      "move_pages",
                                      "migrate_pages",
                                      "mbind",
                                      "set_mempolicy",
                                      "memfd_create",
                                      "memfd_secret",
                                      "shmget",
                                      "msgget",
                                      "semget",
                                      "mq_open"};

}  // namespace

Expected<std::vector<sock_filter>> forbidden_calls() {
  constexpr std::uint64_t kNewSpaces =
      CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  const std::unique_ptr<void, void (*)(void*)> filter(seccomp_init(SCMP_ACT_ALLOW),
                                                      [](void* f) { seccomp_release(f); });
  const auto failed = [](int code) {
    return system_error("the filter of system calls cannot be made", -code, "libseccomp");
  };
  if (!filter) return failed(-ENOMEM);
  for (const char* name : kForbidden) {
    const int call = seccomp_syscall_resolve_name(name);
    if (call == __NR_SCMP_ERROR) continue;  // the library is older than the call
    if (const int code = seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), call, 0); code != 0) return failed(code);
  }
  // clone3 passes its flags through a pointer, so they cannot be filtered; the C library falls back to clone.
  if (const int code = seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0); code != 0)
    return failed(code);
  for (std::uint64_t flag = 1; flag <= kNewSpaces; flag <<= 1)
    if ((kNewSpaces & flag) != 0)
      if (const int code = seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                                            scmp_arg_cmp{0, SCMP_CMP_MASKED_EQ, flag, flag});
          code != 0)
        return failed(code);
  // Sockets that a network namespace does not confine: virtual machines, key rings, raw packets.
  for (const int family : {AF_NETLINK, AF_PACKET, AF_KEY, AF_ALG, AF_VSOCK, AF_BLUETOOTH, AF_CAN, AF_TIPC, AF_XDP})
    if (const int code = seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                                          scmp_arg_cmp{0, SCMP_CMP_EQ, static_cast<scmp_datum_t>(family), 0});
        code != 0)
      return failed(code);
  const int file = memfd_create("dllm-filter", MFD_CLOEXEC);
  if (file < 0) return failed(-errno);
  const int exported = seccomp_export_bpf(filter.get(), file);
  const off_t size = exported == 0 ? lseek(file, 0, SEEK_END) : 0;
  std::vector<sock_filter> result(static_cast<std::size_t>(size) / sizeof(sock_filter));
  const bool whole = pread(file, result.data(), static_cast<std::size_t>(size), 0) == size;
  close(file);
  if (exported != 0) return failed(exported);
  if (!whole) return failed(-EIO);
  return result;
}

}  // namespace dllm::sandbox
