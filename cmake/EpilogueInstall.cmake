# Libraries, headers, pkg-config and CMake package files.
include(CMakePackageConfigHelpers)
install(FILES ${EP_PUBLIC_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/epilogue)
install(TARGETS ep_flags_link ${EP_LIBRARIES} EXPORT epilogueTargets)
install(EXPORT epilogueTargets NAMESPACE epilogue:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/epilogue)
configure_package_config_file(cmake/epilogueConfig.cmake.in ${CMAKE_BINARY_DIR}/epilogueConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/epilogue)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/epilogueConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/epilogueConfig.cmake ${CMAKE_BINARY_DIR}/epilogueConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/epilogue)
configure_file(cmake/epilogue-read.pc.in ${CMAKE_BINARY_DIR}/epilogue-read.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/epilogue-read.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(EPILOGUE_RUN)
  configure_file(cmake/epilogue.pc.in ${CMAKE_BINARY_DIR}/epilogue.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/epilogue.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
