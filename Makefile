# The repository's commands. Every one works on a fresh checkout.

# Every module, the root first. Those that have no tests are not built for them.
modules := $(patsubst %/,%,$(dir $(shell git ls-files 'go.mod' '*/go.mod')))
tested  := $(foreach module,$(modules),$(if $(shell git ls-files '$(module)/*_test.go'),$(module)))

# The Temporal SDK that `make compat` tries: a version, or `latest`.
TEMPORAL_SDK ?= v1.51.0
# The pgx that it tries along with it.
PGX ?= v5.13.0
# More flags for go test: make test TESTFLAGS=-v
TESTFLAGS ?=

cache := $(CURDIR)/.cache
withservers := $(cache)/withservers

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -o pipefail -c
.PHONY: help deps test check compat crash demo fmt tidy $(withservers)

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: $(withservers) ## find or install the servers that tests and demo start
	scripts/deps
	$(withservers)

test: deps ## run every module's tests, on servers started for the run
	$(withservers) scripts/each 'go test -race -shuffle=on -count=1 $(TESTFLAGS) ./...' $(tested)

check: ## format, vet, lint, tidiness, documents
	scripts/check

compat: deps ## run the tests against the newest Temporal SDK and pgx
	cp go.mod $(cache)/newest.mod
	cp go.sum $(cache)/newest.sum
	go get -modfile=$(cache)/newest.mod go.temporal.io/sdk@$(TEMPORAL_SDK) github.com/jackc/pgx/v5@$(PGX)
	$(withservers) go test -mod=mod -modfile=$(cache)/newest.mod -race -shuffle=on -count=1 $(TESTFLAGS) $(patsubst %,./%/...,$(wildcard interceptor gate ledger purge))

crash: deps ## name each crash point while its test dies there
	$(withservers) go test -race -count=1 -v -run 'Crash|Doubt|Dies|Lost|Vanish|Stays' ./ledger ./gate ./interceptor | grep -E '^ *--- |^(ok|FAIL|PASS)|panic'

demo: deps ## watch a worker die after its commit, and the money move once
	cd samples && go run ./demo

fmt: ## format the code
	scripts/golangci-lint fmt

tidy: ## tidy every module
	scripts/each 'go mod tidy' $(modules)

$(withservers):
	@go build -o $@ ./internal/servers/cmd/withservers
