# The only way in, for people and for CI. `make` lists the targets.
SHELL := bash
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.1.0-dev)
COMMIT  ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X github.com/ax-scheduler/ax/server/app.Version=$(VERSION) -X github.com/ax-scheduler/ax/server/app.Commit=$(COMMIT)

# One set of flags for building and testing, so that what is compiled for one serves the other:
# the embedded SQLite alone takes a minute or two. Only the race detector needs cgo.
export CGO_ENABLED ?= 0
export GOFLAGS ?= -trimpath

# Tools are pinned in tools/go.mod and built into ./bin, where they stay until it changes.
BIN     := $(CURDIR)/bin
LINT    := $(BIN)/golangci-lint
# Findings are cached with the paths of the checkout that they were found in.
export GOLANGCI_LINT_CACHE ?= $(BIN)/.lint-cache
FUMPT   := $(BIN)/gofumpt
MODULES := . sdk/go examples/order-service

PURE   := ./internal/message ./internal/schedule ./internal/job ./internal/batch ./internal/routing ./internal/quota \
          ./internal/wheel ./internal/audit ./internal/protocol ./internal/seal
STORED := ./internal/store/... ./sql/... ./internal/auth/... ./internal/trigger/... ./internal/dispatch/... ./internal/outcome/... \
          ./internal/registry/... ./internal/sweep/... ./internal/cluster/...
RACY   := ./internal/ready ./internal/outcome ./internal/registry ./internal/cluster ./internal/sweep ./internal/store ./internal/clock ./internal/protocol

DEV_DB   ?= $(if $(filter 0,$(shell id -u)),/var/tmp/ax-dev-mariadb,$(CURDIR)/data/mariadb)
FUZZTIME ?= 30s
BENCH    ?= .
BASE     ?= main

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z][a-z0-9-]*:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Run

.PHONY: demo
demo: ## from a clean clone to a running demo: builds what is missing, then runs bin/ax-server demo
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory web-if-missing; \
	else echo "npm is not installed: the demo runs without the console, the API is there all the same"; fi
	@$(MAKE) --no-print-directory build-go
	@exec bin/ax-server demo $(ARGS)

.PHONY: db-up
db-up: ## a private MariaDB for development; prints its DSN
	@dsn=$$(scripts/mariadb.sh start $(DEV_DB)) && echo "export AX_TEST_MYSQL=$$dsn   # for go test" && \
	echo "data in $(DEV_DB); make db-down stops it"

.PHONY: db-down
db-down: ## stops it; the data stays
	@scripts/mariadb.sh stop $(DEV_DB)

##@ Build

.PHONY: setup
setup: web-deps tools ## hooks, npm packages, tools, and what the tests need from Debian
	git config core.hooksPath .githooks
	scripts/test-setup.sh

.PHONY: build
build: web build-go ## the console, then bin/ax-server with it inside, and bin/order-service

.PHONY: build-go
build-go: ## bin/ax-server and bin/order-service, with the console that is in web/dist, if any
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ax-server ./server
	cd examples/order-service && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o ../../bin/order-service .

.PHONY: web
web: web-deps ## the console into web/dist
	npm --prefix web run --silent build

.PHONY: web-if-missing
web-if-missing:
	@if [ ! -f web/dist/index.html ] || [ -n "$$(find web/src web/public web/index.html web/package-lock.json -newer web/dist/index.html -print -quit)" ]; then \
	$(MAKE) --no-print-directory web; fi

.PHONY: web-deps
web-deps: web/node_modules/.package-lock.json

web/node_modules/.package-lock.json: web/package.json web/package-lock.json
	npm --prefix web ci --ignore-scripts --no-audit --no-fund
	@touch $@

.PHONY: tools
tools: $(LINT) $(FUMPT) $(BIN)/benchstat

$(LINT) $(FUMPT) $(BIN)/benchstat &: tools/go.mod tools/go.sum
	@mkdir -p bin
	@echo "building the tools of tools/go.mod into ./bin; the first time takes a few minutes"
	cd tools && go build -trimpath -o $(BIN)/ tool
	@touch $(LINT) $(FUMPT) $(BIN)/benchstat

##@ Test

.PHONY: test
test: ## everything, installing what it needs; what CI runs (AX_SHORT=1: without race detector and browser)
	@scripts/test.sh

.PHONY: ci
ci: test ## the same

.PHONY: test-fast
test-fast: ## the pure tier; seconds
	go test $(PURE) ./internal/arch

.PHONY: test-go
test-go: ## all of this module, on SQLite and, where AX_TEST_MYSQL is set, on MariaDB
	go test -timeout 25m ./...

.PHONY: test-db
test-db: ## store and engines on SQLite and on a private MariaDB
	scripts/mariadb.sh with go test -count=1 $(STORED)

.PHONY: test-race
test-race: ## the engines and the server under the race detector; needs a C compiler
	CGO_ENABLED=1 go test -race -timeout 4m $(RACY)
	CGO_ENABLED=1 go test -race -timeout 4m -run 'TestWalk/sqlite' ./server

.PHONY: test-sdk
test-sdk: ## the Go SDK and the sample executor
	cd sdk/go && go test ./...
	cd examples/order-service && CGO_ENABLED=0 go test ./...

SPAN ?= 30s
RUNS ?= 1

.PHONY: nemesis
nemesis: ## faults against three replicas, and a checker (SPAN=30s RUNS=1 SEED= FAULTS= RECORD=)
	@for run in $$(seq $(RUNS)); do go test ./reliability/nemesis -run TestNemesis -count=1 -timeout 60m -v -nemesis -span $(SPAN) \
	$(if $(SEED),-seed $(SEED)) $(if $(FAULTS),-faults '$(FAULTS)') $(if $(RECORD),-record $(CURDIR)/reliability/results.jsonl) || exit 1; done

.PHONY: nemesis-control
nemesis-control: ## the same without the fence, which must be noticed
	go test -tags nofence ./reliability/nemesis -run TestWithoutTheFence -count=1 -v

.PHONY: test-e2e
test-e2e: build ## the console in a real browser against a demo server
	scripts/smoke.sh

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (default 30s)
	@set -e; for module in . sdk/go; do cd $(CURDIR)/$$module; \
	for pkg in $$(go list ./...); do \
	for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	echo "$$pkg $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; done; done; done

.PHONY: golden
golden: ## writes the golden files anew; review the difference like code
	$(MAKE) --no-print-directory generate

.PHONY: bench
bench: ## benchmarks (BENCH=pattern)
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

.PHONY: bench-diff
bench-diff: $(BIN)/benchstat ## benchmarks of BASE (default main) against the work tree, 10 rounds in turn
	scripts/bench-diff.sh '$(BASE)' '$(BENCH)'

##@ Code

.PHONY: lint
lint: lint-go web-deps ## golangci-lint and the console's linter
	npm --prefix web run --silent lint

.PHONY: lint-go
lint-go: $(LINT)
	@for module in $(MODULES); do echo "golangci-lint in $$module"; \
	(cd $$module && $(LINT) run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...) || failed=1; done; [ -z "$$failed" ]

.PHONY: vet
vet:
	@for module in $(MODULES); do echo "go vet in $$module"; (cd $$module && go vet ./...) || exit 1; done

.PHONY: fmt
fmt: $(FUMPT) $(LINT) ## formats the Go code and the console's
	@for module in $(MODULES); do (cd $$module && $(LINT) fmt --config $(CURDIR)/.golangci.yml ./...); done
	@if [ -d web/node_modules ]; then npm --prefix web run --silent format; fi

.PHONY: fmt-check
fmt-check: $(FUMPT)
	@bad=$$($(FUMPT) -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$bad" ]; then echo "not formatted; make fmt does it:"; echo "$$bad"; exit 1; fi; echo "all Go files are formatted"

.PHONY: generate
generate: ## docs/openapi.json, sql/init.sql, docs/state-machine.md
	GIN_MODE=release go run ./server openapi > docs/openapi.json.new && mv docs/openapi.json.new docs/openapi.json
	go run ./sql/initsql > sql/init.sql.new && mv sql/init.sql.new sql/init.sql
	go test ./internal/batch -update

.PHONY: verify
verify: ## what generate would write is what is there
	@mkdir -p test-results
	@GIN_MODE=release go run ./server openapi > test-results/openapi.json
	@diff -u docs/openapi.json test-results/openapi.json || { echo "docs/openapi.json is not that of the code: make generate"; exit 1; }
	@go run ./sql/initsql > test-results/init.sql
	@diff -u sql/init.sql test-results/init.sql || { echo "sql/init.sql is not the sum of the migrations: make generate"; exit 1; }
	@echo "docs/openapi.json and sql/init.sql are those of the code"
