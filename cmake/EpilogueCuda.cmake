# CUDA kernels are compiled ahead by nvcc where it is found; the library itself opens every CUDA library at run time, so
# one binary starts on machines with and without a GPU. Without nvcc the list of ahead-of-time kernels is empty.
if(EPILOGUE_CUDA)
  find_program(EP_NVCC nvcc HINTS /usr/local/cuda/bin)
endif()
