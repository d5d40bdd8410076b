# DLLM_STATIC: the program is linked with archives alone. It then runs on every Linux with this processor, and loads
# nothing at run time: no drivers and no modules of the name service. Compilers and headers are those of every other
# build. scripts/static_libraries makes the archives that Debian does not have.
set(DLLM_STATIC_LIBRARIES ${PROJECT_SOURCE_DIR}/build/static-libraries CACHE PATH "folder of scripts/static_libraries")
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
set(CMAKE_SKIP_RPATH ON)
set(OPENSSL_USE_STATIC_LIBS ON)
foreach(name curl fmt tomlplusplus)
  if(NOT EXISTS ${DLLM_STATIC_LIBRARIES}/lib/lib${name}.a)
    message(FATAL_ERROR "${DLLM_STATIC_LIBRARIES}/lib/lib${name}.a is missing: run scripts/static_libraries")
  endif()
endforeach()
set(CURL_LIBRARY ${DLLM_STATIC_LIBRARIES}/lib/libcurl.a CACHE FILEPATH "" FORCE)
set(CURL_NO_CURL_CMAKE ON)
set(pkgcfg_lib_TOMLPLUSPLUS_tomlplusplus ${DLLM_STATIC_LIBRARIES}/lib/libtomlplusplus.a CACHE FILEPATH "" FORCE)
