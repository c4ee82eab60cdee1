# Every task has a target here; `make help` lists them. meson and ninja do the work; see HACKING.md.

PREFIX ?= /usr/local
DESTDIR ?=
ARGS ?=
ONLY ?=

.DEFAULT_GOAL := all
.PHONY: all try serve test bench soak model arm64 install deb fmt clean help

all: ## build the library, the command and the server in build/plain
	@tools/deps --check build
	@tools/build plain

try: ## install the build dependencies, build, and show step by step how two processes take turns with a lock
	@tools/deps build
	@tools/build --progress plain
	@build/plain/examples/try

serve: ## build and start the server; ARGS='--port 7000' passes options to it
	@tools/deps build
	@tools/build --progress plain src/cli/sluice src/server/sluice-server
	@exec build/plain/src/cli/sluice serve $(ARGS)

test: ## run all tests and checks; ONLY='unit/*' runs only matching ones
	@tools/deps
	@set -f; tests/run $(ONLY)

bench: ## run the benchmarks; ARGS=--json passes options to them
	@tools/deps --check build
	@tools/build --progress plain all bench-programs
	@bench/run build/plain $(ARGS)

soak: ## run the long versions of the tests, which take hours
	@tools/deps --check
	@set -f; tests/run --soak $(ONLY)

model: ## check the models in tests/model exhaustively
	@tools/deps --check build model
	@tests/model/run $(ARGS)

arm64: ## run the kill tests on an emulated arm64 machine (half an hour)
	@tools/deps arm64
	@tests/arm64/run

install: ## install into PREFIX (default /usr/local), below DESTDIR if it is set
	@tools/deps --check build
	@tools/build --progress --prefix '$(PREFIX)' plain
	@tools/install '$(DESTDIR)'

deb: ## build Debian packages in build/deb
	@tools/deps --check build deb
	@packaging/build

fmt: ## format all C files
	@tools/deps --check fmt
	@tools/fmt

clean: ## remove the build directory
	rm -rf build

help: ## print this list
	@sed -n 's/^\([a-z0-9]*\):.* ## \(.*\)/make \1|\2/p' Makefile | sed 's/^make all|/make|/' | \
	    awk -F '|' '{printf "%-14s %s\n", $$1, $$2}'
