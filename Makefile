# The commands people type. BUILD is the build folder, JOBS the parallelism.
BUILD ?= build
JOBS ?= $(shell nproc)
CMAKE_FLAGS ?=

.PHONY: all setup build demo check check-read check-gpu bench bench-gpu fuzz layers sizes format docs install clean

all: build

setup:
	@tools/setup.sh packages.txt

build:
	@cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)

# The tool alone, in a folder of its own: no tests and no CUDA kernels are built for it.
DEMO ?= build-demo
demo: setup
	@cmake -S . -B $(DEMO) -G Ninja -DEPILOGUE_CUDA=OFF -DEPILOGUE_TESTS=OFF -DEPILOGUE_BENCH=OFF $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(DEMO) -j $(JOBS) --target epi
	@OMP_PROC_BIND=close OMP_PLACES=cores $(DEMO)/epi info --measure >/dev/null
	@OMP_PROC_BIND=close OMP_PLACES=cores $(DEMO)/epi run geglu --mode all

check: setup build
	@cd $(BUILD) && ctest --output-on-failure -LE gpu -j $(JOBS)

# The reading half alone: no oneDNN, no OpenMP, no CUDA, no compiler at run time; only zlib may be linked.
check-read:
	@cmake -S . -B $(BUILD)-read -G Ninja -DEPILOGUE_RUN=OFF -DEPILOGUE_WERROR=ON $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD)-read -j $(JOBS)
	@tools/read_only.sh $(BUILD)-read
	@cd $(BUILD)-read && ctest --output-on-failure -LE "gpu|slow" -j $(JOBS)

check-gpu: setup build
	@tools/check_gpu.sh $(BUILD)

bench: build
	@tools/bench.sh $(BUILD)

bench-gpu: build
	@tools/bench.sh $(BUILD) --gpu

fuzz: setup
	@tools/fuzz.sh

layers:
	@tools/layers.sh

sizes:
	@tools/sizes.sh

format:
	@tools/format.sh

docs:
	@tools/docs_check.sh

install: build
	@cmake --install $(BUILD)

clean:
	@rm -rf $(BUILD) build-*
