# ep_embed(FILE GROUP): compiles the text of FILE in as `const char ep_embedded_GROUP_<name>[]` and its length
# `ep_embedded_GROUP_<name>_size` (name: the file's, dots as underscores); the source joins EP_EMBEDDED_GROUP.
function(ep_embed file group)
  get_filename_component(base ${file} NAME)
  string(REGEX REPLACE "[^A-Za-z0-9]" "_" symbol ${base})
  set(out ${CMAKE_BINARY_DIR}/generated/embed/${group}_${symbol}.c)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DIN=${file} -DOUT=${out} -DSYMBOL=ep_embedded_${group}_${symbol}
            -P ${CMAKE_SOURCE_DIR}/cmake/embed_file.cmake
    DEPENDS ${file} ${CMAKE_SOURCE_DIR}/cmake/embed_file.cmake VERBATIM)
  set(EP_EMBEDDED_${group} ${EP_EMBEDDED_${group}} ${out} PARENT_SCOPE)
endfunction()
