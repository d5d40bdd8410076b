#include "base/os_names.h"

#include <cstdlib>  // __GLIBC__

#if defined(DLLM_STATIC) && defined(__GLIBC__)
#include <nss.h>
#endif

namespace dllm {

void prepare_name_lookup() {
#if defined(DLLM_STATIC) && defined(__GLIBC__)
  __nss_configure_lookup("hosts", "files dns");
  for (const char* const database : {"passwd", "group", "initgroups", "services", "protocols", "networks"})
    __nss_configure_lookup(database, "files");
#endif
}

}  // namespace dllm
