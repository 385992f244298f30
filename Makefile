# `make` or `make help` lists what there is.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Settings for the command line: make run ARGS="--data data", make test PKG=./shard/...
ARGS ?=
PKG ?= ./...
RUN ?= .
COUNT ?= 5
BENCH ?= .
BENCHTIME ?= 1s
FUZZTIME ?= 20s
TEST_TIMEOUT ?= 25m
# Packages tested at once. Each may run a PostgreSQL and a Kafka broker of its own.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n : 4)))

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# Ends flashgate when make itself is killed; a Ctrl-C reaches both anyway.
WITH_MAKE := $(shell setpriv --pdeathsig TERM true 2>/dev/null && echo setpriv --pdeathsig TERM)

export PATH := $(CURDIR)/.cache/bin:$(PATH)

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  make run ARGS="--data data"     make test PKG=./shard/... RUN=TestName'

.PHONY: run
run: ## install what is missing, build, and run the whole system (ARGS: flags of flashgate dev)
	@deploy/install.sh run
	@$(MAKE) build
	@exec $(WITH_MAKE) bin/flashgate dev $(ARGS)

.PHONY: build
build: ## build bin/flashgate
	@[[ -x bin/flashgate ]] || echo "building flashgate, which takes a few minutes the first time"
	@# Version and commit come by -ldflags; the stamp of go build fails in a checkout that somebody else owns.
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/flashgate ./cmd/flashgate

.PHONY: test
test: ## install what is missing and run every test, on real servers (PKG, RUN)
	@deploy/install.sh test
	go test -race -shuffle=on -timeout $(TEST_TIMEOUT) -p $(JOBS) -run '$(RUN)' $(PKG)

.PHONY: lint
lint: ## formatting, go vet, go.mod, golangci-lint
	@deploy/install.sh lint
	@unformatted=$$(gofmt -l .); [[ -z $$unformatted ]] || { echo "gofmt would change: $$unformatted"; exit 1; }
	go vet ./...
	go mod tidy -diff
	golangci-lint run

.PHONY: race
race: ## run the tests COUNT times over under the race detector (PKG, RUN)
	@deploy/install.sh test
	go test -race -shuffle=on -count $(COUNT) -timeout 1h -p $(JOBS) -run '$(RUN)' $(PKG)

.PHONY: heal
heal: ## the tests of the README's failure table in full size, seven to ten minutes (RUN)
	@deploy/install.sh test
	FLASHGATE_TEST_LARGE=1 go test -race -count=1 -v -timeout 1h -run '$(if $(filter .,$(RUN)),^TestHeal,$(RUN))' ./internal/e2e

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME
	@grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed -E 's|/[^/]*:func | |' | sort -u | \
	while read -r dir target; do \
		echo "--- $$dir $$target"; \
		go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s "$$dir" </dev/null; \
	done

.PHONY: bench
bench: ## run the Go benchmarks (PKG, BENCH, BENCHTIME); for load see flashgate bench --help
	@deploy/install.sh test
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem -timeout 1h -p 1 $(PKG)

.PHONY: clean
clean: ## remove what was built and fetched
	rm -rf bin .cache
