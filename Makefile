# A thin wrapper of meson and ninja, so that a newcomer needs two commands: `make run` and `make test`.
#
#   make               builds everything into build/; the programs run from there without being installed
#   make run           installs what is missing, builds, and runs a real example in a sandbox
#   make test          installs what the tests need, builds, and runs everything
#   make install       installs below PREFIX (/usr/local); DESTDIR is honoured
#   make bench         times hutch beside bare Python, bubblewrap, crun and docker (where an engine answers)
#   make fuzz          runs each fuzzer for FUZZ_SECONDS (600)
#   make check-format  says which files clang-format would change;  make tidy runs clang-tidy
#   make clean         removes the build folders

BUILD        ?= build
ASAN_BUILD   ?= build-asan
FUZZ_BUILD   ?= build-fuzz
PREFIX       ?= /usr/local
DESTDIR      ?=
FUZZ_SECONDS ?= 600
PYTHON       ?= /usr/bin/python3
OUT          := $(BUILD)/example-out

.DEFAULT_GOAL := all
.PHONY: all run test install bench fuzz check-format tidy clean asan fuzzers deps-run deps-test

# Only a build folder that does not exist yet has to ask for packages: afterwards ninja knows.
$(BUILD)/build.ninja:
	@tools/install-deps.sh --check build
	meson setup $(BUILD) --prefix=$(PREFIX)

$(ASAN_BUILD)/build.ninja:
	@tools/install-deps.sh --check build
	meson setup $(ASAN_BUILD) -Dsanitize=true --buildtype=debug

$(FUZZ_BUILD)/build.ninja:
	@tools/install-deps.sh build fuzz
	CC=clang meson setup $(FUZZ_BUILD) -Dfuzz=true -Dsanitize=true --buildtype=debugoptimized

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

asan: $(ASAN_BUILD)/build.ninja
	@ninja -C $(ASAN_BUILD)

deps-run:
	@tools/install-deps.sh build run

deps-test:
	@tools/install-deps.sh build run test

# The packages come before the build, also under `make -j`: hence the second make.
run: deps-run
	@$(MAKE) --no-print-directory all
	@tools/run-example.sh $(BUILD)/hutch $(OUT)

test: deps-test
	@$(MAKE) --no-print-directory all asan
	@$(PYTHON) tools/run-tests.py --build $(BUILD) --asan-build $(ASAN_BUILD)

# libexecdir is compiled in, so another PREFIX than the build folder's means building again.
install: all
	@meson configure $(BUILD) -Dprefix=$(PREFIX)
	@ninja -C $(BUILD)
	DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

bench: all
	@tools/install-deps.sh bench
	@$(PYTHON) bench/bench.py --hutch $(BUILD)/hutch

fuzzers: $(FUZZ_BUILD)/build.ninja
	@ninja -C $(FUZZ_BUILD)

fuzz: fuzzers
	@$(PYTHON) tools/run-fuzzers.py --build $(FUZZ_BUILD) --seconds $(FUZZ_SECONDS)

SOURCES = $(shell find src fuzz bench -name '*.[ch]' | sort)

check-format:
	@tools/install-deps.sh format
	clang-format --dry-run -Werror $(SOURCES)

tidy: all
	@tools/install-deps.sh format
	clang-tidy -p $(BUILD) --quiet $(filter src/%.c,$(SOURCES))

clean:
	rm -rf $(BUILD) $(ASAN_BUILD) $(FUZZ_BUILD)
