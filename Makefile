# The one door to Sluice. meson and ninja do the work; see HACKING.md.

PREFIX ?= /usr/local
DESTDIR ?=
ARGS ?=
ONLY ?=

.DEFAULT_GOAL := all
.PHONY: all try serve test bench soak model arm64 install deb fmt clean help

all: ## build library, command and server into build/plain
	@tools/deps --check build
	@tools/build plain

try: ## a first lock between two processes, step by step
	@tools/deps build
	@tools/build --quiet plain
	@build/plain/examples/try

serve: ## build and start the server; ARGS='--port 7000' and others go to it
	@tools/deps build
	@tools/build --quiet plain src/cli/sluice src/server/sluice-server
	@exec build/plain/src/cli/sluice serve $(ARGS)

test: ## every test and check; ONLY='unit/*' runs some of them
	@tools/deps
	@set -f; tests/run $(ONLY)

bench: ## measure; ARGS=--json and others go to the bench
	@tools/deps --check build
	@tools/build --quiet plain all bench-programs
	@bench/run build/plain $(ARGS)

soak: ## the long forms of the tests; hours
	@tools/deps --check
	@set -f; tests/run --soak $(ONLY)

model: ## check the models exhaustively
	@tools/deps --check build model
	@tests/model/run $(ARGS)

arm64: ## the tests that kill, on an emulated arm64 machine; half an hour
	@tools/deps arm64
	@tests/arm64/run

install: ## install below PREFIX (/usr/local), under DESTDIR if that is set
	@tools/deps --check build
	@tools/build --quiet --prefix '$(PREFIX)' plain
	@tools/install '$(DESTDIR)'

deb: ## Debian packages, into build/deb
	@tools/deps --check build deb
	@packaging/build

fmt: ## format all C files
	@tools/deps --check fmt
	@tools/fmt

clean: ## remove everything that was built
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z0-9]*\):.* ## \(.*\)/make \1|\2/p' Makefile | sed 's/^make all|/make|/' | \
	    awk -F '|' '{printf "%-14s %s\n", $$1, $$2}'
