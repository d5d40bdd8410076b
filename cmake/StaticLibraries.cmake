# DLLM_STATIC and DLLM_PORTABLE: all libraries but glibc are inside the program. Compilers and headers are those of every
# other build. scripts/static_libraries makes the archives that Debian does not have.
#
# DLLM_STATIC takes glibc's archive too. The program then runs on every Linux with this processor, and loads nothing at run
# time: no drivers and no modules of the name service. DLLM_PORTABLE needs glibc 2.28 or a later one, and may load both.
set(DLLM_STATIC_LIBRARIES ${PROJECT_SOURCE_DIR}/build/static-libraries CACHE PATH "folder of scripts/static_libraries")
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
set(CMAKE_SKIP_RPATH ON)
set(OPENSSL_USE_STATIC_LIBS ON)
foreach(name curl fmt tomlplusplus zmq)
  if(NOT EXISTS ${DLLM_STATIC_LIBRARIES}/lib/lib${name}.a)
    message(FATAL_ERROR "${DLLM_STATIC_LIBRARIES}/lib/lib${name}.a is missing: run scripts/static_libraries")
  endif()
endforeach()
set(CURL_LIBRARY ${DLLM_STATIC_LIBRARIES}/lib/libcurl.a CACHE FILEPATH "" FORCE)
set(CURL_NO_CURL_CMAKE ON)
set(pkgcfg_lib_TOMLPLUSPLUS_tomlplusplus ${DLLM_STATIC_LIBRARIES}/lib/libtomlplusplus.a CACHE FILEPATH "" FORCE)
set(pkgcfg_lib_ZMQ_zmq ${DLLM_STATIC_LIBRARIES}/lib/libzmq.a CACHE FILEPATH "" FORCE)

if(DLLM_PORTABLE)
  set(DLLM_GLIBC ${PROJECT_SOURCE_DIR}/build/glibc-2.28 CACHE PATH "folder of scripts/glibc_stubs.py")
  if(NOT EXISTS ${DLLM_GLIBC}/libc.so)
    message(FATAL_ERROR "${DLLM_GLIBC}/libc.so is missing: run scripts/glibc_stubs.py")
  endif()
  # Of what is linked with them: CMake sees only options.
  set(DLLM_LINK_DEPENDS ${DLLM_GLIBC}/libc.so ${DLLM_GLIBC}/libcompat.a)
  add_link_options(-L${DLLM_GLIBC} -static-libstdc++ -static-libgcc)
endif()
