# Everything a developer or CI runs is a target here. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO ?= go
# Programs are static, as in their image. What has no race detector is compiled once for all targets.
STATIC := CGO_ENABLED=0 $(GO)
CACHE := $(CURDIR)/.cache
TOOLS := $(CACHE)/bin

# Test binaries build in parallel, but few of them run at once: each may bring a database server with it. One more than there are processors,
# because most wait half of the time.
TEST_P ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))
# The parallel tests of a package wait for databases more than they work.
TEST_PARALLEL ?= $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN) )))
TEST_TIMEOUT ?= 25m
TESTFLAGS ?=
PKG ?= ./...
# A program with the race detector sleeps for a second before it exits, and tests start hundreds of programs.
export GORACE ?= atexit_sleep_ms=50
# The compiler uses a seventh less CPU without debug symbols, which only debuggers need. SQLite is C that was translated to Go: its tests use a
# third to a half of the CPU if it is not instrumented for the race detector. The package that calls it is, so two goroutines on one connection
# are still found. Without garbage collection below 2 GiB, compilers use a quarter less CPU. All targets share these flags, because other flags
# compile every package again.
COMPILE := -gcflags=all=-dwarf=false '-gcflags=github.com/ncruces/go-sqlite3-wasm/...=-dwarf=false -race=false' '-toolexec=env GOGC=off GOMEMLIMIT=2GiB'
export GOFLAGS := $(filter-out $(COMPILE),$(shell $(GO) env GOFLAGS)) $(COMPILE)
# make vet analyses the same code, and all of it; here it would compile facts about every dependency.
TEST = $(GO) test -race -vet=off -tags integration -p $(TEST_P) -parallel $(TEST_PARALLEL) -timeout $(TEST_TIMEOUT) $(TESTFLAGS)

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z][a-z-]*:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Build the command line and show it at work on the embedded default (needs nothing but Go)
	@tools/demo.sh

.PHONY: demo-controllers
demo-controllers: ## Run a deployment controller in two processes, kill one and show the take-over (needs nothing but Go)
	@tools/demo-controllers.sh

.PHONY: demo-serve
demo-serve: curl ## Start a server on the embedded default, write to it by curl, watch it, delete with all that is owned (needs Go and curl)
	@tools/demo-serve.sh

.PHONY: record-top
record-top: ## Record the session of ashlar top that docs/cli.md shows (docs/assets/top.cast)
	go test ./cmd/ashlar -count 1 -run TestTopOnATerminal -args -record-top $(CURDIR)/docs/assets/top.cast

.PHONY: picture
picture: ## Draw the picture of the architecture in README.md
	docs/assets/architecture.sh > docs/assets/architecture.svg

.PHONY: build
build: ## Build everything; bin/ashlar is the command line
	$(STATIC) build ./...
	@mkdir -p bin
	$(STATIC) build -o bin/ ./cmd/...

##@ Tests

.PHONY: test
test: cc curl docker images ## All tests, race detector on; where no Docker answers, it is installed first (ASHLAR_DOCKER=existing: never)
	$(TEST) $(PKG)
	$(if $(filter ./...,$(PKG)),@$(MAKE) kubernetes TESTFLAGS='-tags integration $(TESTFLAGS)')

.PHONY: test-unit
test-unit: cc curl ## The tests that need no Docker, race detector on
	$(GO) test -race -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PKG)

.PHONY: test-integration
test-integration: cc curl docker images ## The packages that talk to databases in containers
	$(TEST) \
		$$($(GO) list -tags integration -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | \
			awk '/ [^ ]*\/internal\/test\/(env|stores)( |$$)/ { print $$1 }') ./internal/test/env

.PHONY: stress
stress: cc curl docker images ## make test of PKG beside BUSY (8) busy processes: PKG=./lease TESTFLAGS='-run TestX -count=3'
	@tools/stress.sh $(TEST) $(PKG)

.PHONY: mutation
mutation: ## Change the code of PKG in small ways, and list the changes that its unit tests do not detect: PKG=typed (minutes; see docs/mutation.md)
	@mkdir -p $(TOOLS)
	cd tools/mutation && $(GO) build -o $(TOOLS)/mutation .
	$(TOOLS)/mutation -pkg $(patsubst ./%,%,$(PKG)) -- -test.short

.PHONY: hostile
hostile: ## ashlar serve beside clients that misuse it: its peak memory, and the rate of another client (Linux)
	$(GO) test -tags 'integration soak' -count=1 -timeout $(TEST_TIMEOUT) -v $(TESTFLAGS) -run '^TestHostileLoad$$' ./cmd/ashlar

.PHONY: compat
compat: cc ## The published client of the API that the resource service is compatible with, against ours (TESTFLAGS='-tags integration': on Postgres too)
	cd service/compat && $(GO) test -race -vet=off -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...

.PHONY: schemathesis
schemathesis: $(CACHE)/schemathesis/.stamp ## The HTTP API against its OpenAPI document, with Schemathesis (needs Python 3.10 with venv, and PyPI)
	SCHEMATHESIS=$(CACHE)/schemathesis/bin/schemathesis $(GO) test -tags schemathesis -count=1 -timeout $(TEST_TIMEOUT) -v $(TESTFLAGS) -run '^TestSchemathesis$$' ./service/web

$(CACHE)/schemathesis/.stamp: tools/schemathesis/requirements.txt
	python3 -m venv --clear $(CACHE)/schemathesis
	$(CACHE)/schemathesis/bin/pip install --quiet --requirement tools/schemathesis/requirements.txt
	@touch $@

.PHONY: monitoring
monitoring: ## The queries of docs/monitoring against scrapes of a server and the tests of its alert rules, with Prometheus' engine, and traces with a collector (the first build takes a minute)
	$(GO) build -o bin/ ./cmd/ashlar
	cd tools/monitoring && ASHLAR=$(CURDIR)/bin/ashlar $(GO) test -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...

.PHONY: etcdctl
etcdctl: docker images ## The commands of etcdctl against `ashlar serve etcd`, on SQLite and Postgres, compared with a real etcd
	cd etcdserver/etcdctl && $(STATIC) test -vet=off -tags integration -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...

# Without the race detector and without optimizing Kubernetes, which takes minutes to compile. Its tests wait more than they work, so that more of
# them run at a time than there are processors.
QUICK_K8S := -gcflags='k8s.io/...=-N -l -dwarf=false'
.PHONY: kubernetes
kubernetes: ## Kubernetes' own tests of its storage, on memory and SQLite (TESTFLAGS='-tags integration': on Postgres and etcd too)
	cd etcdserver/kubernetes && $(STATIC) test $(QUICK_K8S) -vet=off -parallel 8 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) .

.PHONY: kubetest
kubetest: docker images ## An API server of custom resources and a real kube-apiserver on our storage (they take ten minutes to compile); ASHLAR_KUBETEST_MANIFESTS=folder is applied to it
	cd etcdserver/kubernetes && $(STATIC) vet $(QUICK_K8S) -tags integration ./example
	cd etcdserver/kubernetes && $(STATIC) test $(QUICK_K8S) -vet=off -tags integration -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./example
	cd etcdserver/kubernetes/kubetest && $(GO) test -tags integration -count=1 -v -timeout $(TEST_TIMEOUT) $(TESTFLAGS) \
		-ldflags '-X k8s.io/component-base/version.gitVersion=v1.36.3' ./...

.PHONY: etcd-changes
etcd-changes: cc docker images ## CHANGES (1000000) by etcd's API under compaction, on SQLite and Postgres: what is kept, how long writes take
	ASHLAR_CHANGES=$${CHANGES:-1000000} $(GO) test -tags 'integration soak' -count=1 -timeout 2h -v $(TESTFLAGS) -run '^TestManyChanges$$' ./etcdserver

.PHONY: migrate-matrix
migrate-matrix: cc docker images ## Move 20,000 resources between every pair of databases, under load, and interfere at each step (a long time)
	ASHLAR_MIGRATE_RESOURCES=$${ASHLAR_MIGRATE_RESOURCES:-20000} $(GO) test -tags integration -count=1 -timeout 6h -v $(TESTFLAGS) \
		-run 'TestEveryPair|TestInterference' ./migrate

.PHONY: test-postgres
test-postgres: cc docker ## The Postgres tests on every supported release (15 to 18)
	@. internal/test/images/versions.env; for v in $$ASHLAR_POSTGRES_VERSIONS; do \
		echo "== Postgres $$v"; \
		ASHLAR_POSTGRES_VERSION=$$v tools/images.sh postgres; \
		ASHLAR_POSTGRES_VERSION=$$v $(GO) test -race -tags integration -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./postgres/...; \
	done

.PHONY: test-faults
test-faults: cc docker images ## Tests that take too long for every run: faults of a Postgres server, memory behind stuck watches, a user's own server
	$(GO) test -race -tags 'integration soak' -count=1 -timeout $(TEST_TIMEOUT) -v $(TESTFLAGS) -run TestFaults ./postgres
	$(GO) test -tags 'integration soak' -count=1 -timeout $(TEST_TIMEOUT) -v $(TESTFLAGS) ./internal/test/heap
	$(GO) test -tags 'integration soak' -count=1 -timeout $(TEST_TIMEOUT) -v $(TESTFLAGS) -run TestConformance ./cmd/ashlar

.PHONY: torture
torture: cc docker images ## Break databases under load for FOR (1m) each; BACKEND=memory|sqlite|postgres|etcd|dynamodb picks one, SEED=n repeats a run; the seed is random otherwise (make test: internal/test/torture/seeds.go)
	@case "$${BACKEND:-all}" in \
	all) pkgs="./inmem ./sqlite ./postgres ./etcd ./dynamodb" ;; memory) pkgs=./inmem ;; sqlite|postgres|etcd|dynamodb) pkgs="./$$BACKEND" ;; \
	*) echo "torture: unknown BACKEND=$$BACKEND, expected memory, sqlite, postgres, etcd or dynamodb" >&2; exit 2 ;; esac; \
	ASHLAR_TORTURE_FOR="$${FOR:-1m}" ASHLAR_TORTURE_SEED="$${SEED:-random}" ASHLAR_TORTURE_DIR="$${DIR:-$(CACHE)/torture}" \
	$(GO) test -race -tags 'integration soak' -count=1 -p 1 -timeout 24h -v -run '^TestTorture' $(TESTFLAGS) $$pkgs

.PHONY: soak-relay
soak-relay: cc ## 300 handles in 20 processes watch a DynamoDB table through relays that are killed and frozen, for FOR (10m); conformance and costs of relays
	ASHLAR_RELAY_FOR="$${FOR:-10m}" ASHLAR_RELAY_PROCESSES=20 ASHLAR_RELAY_HANDLES=15 ASHLAR_RELAY_PAUSE_MS=500 ASHLAR_RELAY_PAGE=1000 \
	$(GO) test -count=1 -timeout 24h -v -run '^TestProcessesWatchThroughFailingRelays$$' $(TESTFLAGS) ./dynamodb/relay
	$(GO) test -tags soak -count=1 -timeout $(TEST_TIMEOUT) -v -run '^Test(Conformance|FanOutCosts)$$' $(TESTFLAGS) ./dynamodb/relay

.PHONY: torture-controllers
torture-controllers: cc docker images ## Controllers over databases that break, in processes that are killed and paused, for FOR (1m) each; BACKEND=sqlite|postgres|etcd|dynamodb picks one
	ASHLAR_CONTROLLERS_FOR="$${FOR:-1m}" $(GO) test -race -tags 'integration soak' -count=1 -timeout 24h -v $(TESTFLAGS) \
		-run "(?i)^TestFaults$${BACKEND:-}" ./internal/test/controllers

.PHONY: test-upgrade
test-upgrade: cc docker images ## A rolling upgrade from the commit PREVIOUS (the last release): both versions use one store for FOR (1m) each database
	@tools/upgrade-test.sh $(GO) test -race -tags 'integration soak' -count=1 -timeout 24h -v -run '^TestUpgrade$$' $(TESTFLAGS) ./internal/test/upgrade

.PHONY: fuzz
fuzz: ## Run each fuzz test for FUZZTIME (30s); PKG=./etcd and FUZZ=Keys pick some (the first build takes minutes)
	@tools/fuzz.sh

.PHONY: fuzz-smoke
fuzz-smoke: ## Run each fuzz test on 3,000 inputs, without instrumentation
	@SMOKE=1 FUZZTIME=$${FUZZTIME:-3000x} tools/fuzz.sh

.PHONY: bench
bench: ## Measure side by side with the raw drivers; BACKEND=memory|sqlite|postgres|etcd|dynamodb picks one; GROW=1 plots how costs grow with the store
	@tools/bench.sh

.PHONY: bench-smoke
bench-smoke: ## Run every comparison for a moment, to see that it does (with the images of make images)
	@SMOKE=1 tools/bench.sh

.PHONY: bench-controllers
bench-controllers: ## Measure controllers beside controller-runtime and client-go, in memory (it takes minutes to compile)
	cd bench/controllers && $(GO) test -run '^$$' -bench . -benchtime 1x -timeout 1h . $(BENCHFLAGS)

##@ Servers

.PHONY: image
image: docker ## Build the container image of the server, ashlar:dev, on this machine (Dockerfile)
	@tools/image.sh

.PHONY: test-image
test-image: image curl ## Build it, run it and look whether it serves, keeps what it is given and ends well
	@tools/image-test.sh

.PHONY: docker
docker: ## Make sure of a Docker daemon (installs and starts one on Debian, as root)
	@tools/docker.sh

.PHONY: images
images: docker ## Provide the pinned database images: pulled, or built where no registry can be reached
	@tools/images.sh

.PHONY: up
up: images image ## Start the three databases and a server on Postgres on loopback ports (docker-compose.yaml), ready when it returns
	@tools/compose.sh up -d
	@tools/compose.sh --wait

.PHONY: down
down: ## Stop them and delete their data
	@tools/compose.sh down -v

##@ Releases

.PHONY: snapshot
snapshot: $(TOOLS)/goreleaser ## Build the files of a release into dist/ and check them, without publishing (docs/releases.md)
	@tools/release/snapshot.sh $(TOOLS)

$(TOOLS)/goreleaser: tools/release/go.mod tools/release/go.sum
	@mkdir -p $(TOOLS)
	cd tools/release && GOBIN=$(TOOLS) $(GO) install tool

##@ Code

.PHONY: generate
generate: tools ## Generate the Go code of the .proto files
	@PATH="$(TOOLS):$$PATH" buf generate --config resourcepb/buf.yaml --template resourcepb/buf.gen.yaml
	@tools/generated.sh > resourcepb/generated.sum

.PHONY: check-generate
check-generate: ## Fail when make generate was forgotten (make lint generates the code and compares it)
	@tools/generated.sh | diff resourcepb/generated.sum - || { echo "the generated code is not current: run make generate and commit the result"; exit 1; }

.PHONY: tools
tools: $(TOOLS)/.stamp

$(TOOLS)/.stamp: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	@cd tools && for n in 1 2 3; do GOBIN=$(TOOLS) GOFLAGS=-mod=readonly $(GO) install tool && break; [ $$n != 3 ] || exit 1; sleep 5; done
	@touch $@

.PHONY: fmt
fmt: ## Format the Go code
	gofmt -w .

.PHONY: check-fmt
check-fmt: ## Fail when Go code is not formatted
	@bad=$$(gofmt -l .); \
	if [ -n "$$bad" ]; then echo "not formatted (make fmt):"; echo "$$bad"; exit 1; fi

# With the race detector where the tests have it: vet compiles what they need anyway, once instead of twice.
.PHONY: vet
vet: cc ## go vet, with and without the integration tests, and of the other modules
	$(GO) vet -race -tags 'integration soak' ./...
	$(GO) vet -race $$(grep -rl --include='*_test.go' --exclude-dir=.cache --exclude-dir=compat --exclude-dir=kubernetes '^//go:build !integration' . | xargs -n1 dirname | sort -u)
	cd bench && $(STATIC) vet -tags integration ./...
	cd service/compat && $(GO) vet -race ./... && $(GO) vet -race -tags integration ./...
	cd etcdserver/kubernetes && $(STATIC) vet $(QUICK_K8S) . && $(STATIC) vet $(QUICK_K8S) -tags integration .
	cd etcdserver/etcdctl && $(STATIC) vet ./... && $(STATIC) vet -tags integration ./...

.PHONY: lint
lint: tools $(TOOLS)/golangci-lint prose ## golangci-lint, buf for the .proto files, the generated code, and the report of make prose
	@tools/check-generate.sh "$(TOOLS)"
	@PATH="$(TOOLS):$$PATH" buf lint --config resourcepb/buf.yaml
	$(TOOLS)/golangci-lint run --build-tags integration,soak ./...

.PHONY: prose
prose: ## Report stilted constructions in comments, tests, messages and documents, by package (it never fails because of them)
	@$(GO) run tools/lint/prose.go

$(TOOLS)/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	@mkdir -p $(TOOLS)
	cd tools/lint && GOBIN=$(TOOLS) $(GO) install tool

# Tests run the sessions that the documents show.
.PHONY: curl
curl:
	@command -v curl >/dev/null || tools/apt-install.sh curl

# The race detector is C code.
.PHONY: cc
cc:
	@command -v $$($(GO) env CC | cut -d' ' -f1) >/dev/null || tools/apt-install.sh gcc libc6-dev

.PHONY: clean
clean: ## Delete what was built, and containers that tests left behind
	rm -rf bin .cache
	@if command -v docker >/dev/null && timeout 20 docker version >/dev/null 2>&1; then \
		docker ps -aq --filter label=dev.ashlar.testenv.owner | xargs -r docker rm -fv >/dev/null; \
		docker network ls -q --filter label=dev.ashlar.testenv.owner | xargs -r docker network rm >/dev/null; \
	fi
