# CUDA kernels are compiled ahead by nvcc where it is found; the library itself opens every CUDA library at run time, so
# one binary starts on machines with and without a GPU. Without nvcc the list of ahead-of-time images is empty.
set(EP_CUDA_ROWS "")
set(EP_CUDA_EXTERNS "")
if(EPILOGUE_CUDA)
  find_program(EP_NVCC nvcc HINTS /usr/local/cuda/bin)
else()
  set(EP_NVCC "") # shadows what an earlier configuration found
endif()
set(EP_CUDA_GENERIC -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90
    -gencode=arch=compute_90,code=compute_90)
set(EP_CUDA_SM90A -gencode=arch=compute_90a,code=sm_90a)

function(ep_cuda_image source min_major only_major)
  get_filename_component(name ${source} NAME_WE)
  set(fatbin ${CMAKE_BINARY_DIR}/generated/cuda/${name}.fatbin)
  set(depend ${CMAKE_BINARY_DIR}/generated/cuda/${name}.d)
  add_custom_command(OUTPUT ${fatbin}
    COMMAND ${EP_NVCC} ${ARGN} -O3 -std=c++17 -fatbin --compress-mode=size -I${CMAKE_SOURCE_DIR}/include -MD -MF ${depend} -MT ${fatbin}
            -o ${fatbin} ${source}
    DEPENDS ${source} DEPFILE ${depend} VERBATIM COMMENT "nvcc ${name}")
  set(wrapper ${CMAKE_BINARY_DIR}/generated/cuda/${name}_image.c)
  file(CONFIGURE OUTPUT ${wrapper} CONTENT "/* The bytes of ${name}.fatbin. */
__asm__(\".section .rodata\\n.balign 64\\n.global ep_cuda_image_${name}\\nep_cuda_image_${name}:\\n\"
        \".incbin \\\"${fatbin}\\\"\\n.byte 0\\n.previous\\n\");
typedef int ep_cuda_image_${name}_not_empty;
")
  set_source_files_properties(${wrapper} PROPERTIES OBJECT_DEPENDS ${fatbin})
  set(EP_CUDA_SOURCES ${EP_CUDA_SOURCES} ${wrapper} PARENT_SCOPE)
  string(APPEND EP_CUDA_EXTERNS "extern const char ep_cuda_image_${name}[];\n")
  string(APPEND EP_CUDA_ROWS "    {\"${name}\", ep_cuda_image_${name}, ${min_major}, ${only_major}},\n")
  set(EP_CUDA_EXTERNS "${EP_CUDA_EXTERNS}" PARENT_SCOPE)
  set(EP_CUDA_ROWS "${EP_CUDA_ROWS}" PARENT_SCOPE)
endfunction()

set(EP_CUDA_SOURCES)
if(EPILOGUE_CUDA AND EP_NVCC)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/run/backend/cuda/kernels/sm90a/*.cu)
  foreach(source ${sources})
    ep_cuda_image(${source} 9 9 ${EP_CUDA_SM90A})
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/run/backend/cuda/kernels/sm80/*.cu)
  foreach(source ${sources})
    ep_cuda_image(${source} 8 0 ${EP_CUDA_GENERIC})
  endforeach()
else()
  message(STATUS "nvcc was not found: no ahead-of-time CUDA kernels in this build")
endif()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/cuda/images.c CONTENT "#include \"run/backend/cuda/cuda_images.h\"
${EP_CUDA_EXTERNS}const cuda_image cuda_images[] = {
${EP_CUDA_ROWS}    {0}};
const size_t cuda_image_count = sizeof cuda_images / sizeof *cuda_images - 1;
")
add_library(ep_cuda_objects OBJECT ${EP_CUDA_SOURCES} ${CMAKE_BINARY_DIR}/generated/cuda/images.c)
target_link_libraries(ep_cuda_objects PRIVATE ep_run_flags)
set_target_properties(ep_cuda_objects PROPERTIES C_VISIBILITY_PRESET hidden)
list(APPEND EP_RUN_OBJECTS ep_cuda_objects)
