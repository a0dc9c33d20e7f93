# Every target does its own set-up and says in its last line what it found.
SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := build
COMMIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
COMMITTED := $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
# grpcnotrace leaves gRPC's pages for debugging out, and their html/template: see deps.txt
GOFLAGS_BUILD := -trimpath -tags grpcnotrace -ldflags "-s -w -X main.commit=$(COMMIT) -X main.committed=$(COMMITTED)"
export CGO_ENABLED := 0

PREFIX ?= /usr/local

.PHONY: build install demo test quick race writes failover upgrade power lint bench tokens mutants probes conformance hosts machines s3 chart kubernetes bare fuzz setup release clean

build: ## bin/waldo
	@mkdir -p bin
	@scripts/build-gvisor.sh
	@scripts/cpython.sh
	@go build $(GOFLAGS_BUILD) -o bin/waldo ./cmd/waldo
	@echo "build: bin/waldo, $$(du -h bin/waldo | cut -f1)"

install: build ## binary, man pages and completions below $(DESTDIR)$(PREFIX), as in PREFIX=~/.local
	@install -D -m 755 bin/waldo "$(DESTDIR)$(PREFIX)/bin/waldo"
	@bin/waldo man "$(DESTDIR)$(PREFIX)/share/man/man1" >/dev/null
	@install -d "$(DESTDIR)$(PREFIX)/share/bash-completion/completions" "$(DESTDIR)$(PREFIX)/share/zsh/site-functions" \
		"$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"
	@bin/waldo completion bash >"$(DESTDIR)$(PREFIX)/share/bash-completion/completions/waldo"
	@bin/waldo completion zsh >"$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_waldo"
	@bin/waldo completion fish >"$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/waldo.fish"
	@echo "install: $(DESTDIR)$(PREFIX)/bin/waldo, its man pages and completions"

# KEY=FILE signs with an SSH key; URL=… is where the files will be; ONLY=linux/amd64 leaves targets out; AGAIN=shared
# compares without compiling anew, which halves the hour of processor time. No tag is made.
release: ## dist: archives, .deb, .rpm, an OCI image, formula, bills of materials, provenance, signed digests
	@go run ./tools/release -out dist $(if $(KEY),-key "$(KEY)") $(if $(URL),-url "$(URL)") $(if $(ONLY),-only "$(ONLY)") \
		$(if $(AGAIN),-again "$(AGAIN)")

setup: ## what the tests need: interpreters and npm servers
	@scripts/setup.sh

demo: build ## the main job, end to end
	@scripts/setup.sh --runtime
	@bin/waldo demo

test: setup build ## every test
	@go vet ./...
	@go test -timeout 45m ./...
	@echo "test: all packages pass"

quick: ## what fits in 90 s: vet, the rules of the tree, and the fast tests of each package
	@scripts/quick.sh

# Databases are left out: SQLite in Go takes ten minutes under the race detector, and is not waldo's.
race: ## core, front ends and executors but databases under the race detector; needs gcc
	@CGO_ENABLED=1 go test -race -short -timeout 20m \
		$$(go list ./internal/core/... ./internal/frontend/... ./internal/executor/... | grep -v /executor/sql)
	@echo "race: none found"

writes: ## 1,000 keyed writes with kills of waldo and of the server, and 1,000 with cuts of the network; 30 minutes
	WALDO_WRITES=1000 go test ./internal/feature/reliability -run 'TestManyKeyedWrites|TestNetworkCuts' -v -timeout 2h

failover: ## 10,000 keyed writes at three gateways: kills, pauses, cuts, PostgreSQL fails over; CALLS=N is another number
	WALDO_CALLS=$(or $(CALLS),10000) go test ./cmd/waldo -run 'TestFailover$$' -v -timeout 3h

upgrade: ## clients write while this waldo takes the state directory of the release before over; FROM=COMMIT is another
	@scripts/upgrade.sh

power: build ## 200 power cuts of a disk under a waldo that writes: nothing lost, twice or unverifiable; needs root
	@[ $$(id -u) = 0 ] || { echo "power: it needs root, for loop devices and FUSE"; exit 1; }
	POWER_CUTS=$${POWER_CUTS:-200} POWER_WALDO=$(CURDIR)/bin/waldo go test ./internal/feature/evidence -run 'TestPower$$' -v -timeout 3h

lint: ## gofmt, vet, staticcheck, the tree without each feature, and govulncheck where its database is reachable
	@scripts/lint.sh

bench: build ## ratios against a peer or a floor, in one run
	@scripts/bench.sh

tokens: build ## tokens of ten tasks, by direct calls and by a program; writes the table in BENCHMARKS.md
	@go run ./tools/codetokens -write BENCHMARKS.md
	@echo "tokens: the goals of BENCHMARKS.md hold"

mutants: setup ## switches each guard off in turn; the suite must notice. MUTANTS="-since REV -for 20m": what changed
	@go run ./tools/mutants $(MUTANTS)

probes: setup build ## programs that try to get out of the sandbox; writes the table in docs/security/probes.md
	@scripts/probes.sh

conformance: ## the official suite of MCP through the gateway, in both eras on either side; SDKs and types of A2A
	@scripts/conformance.sh

hosts: build ## real agent hosts and heavy servers through waldo; see CONTRIBUTING.md
	@scripts/hosts.sh

machines: build ## waldo on a Debian of its own: cgroups of version 2 alone, real Docker, other kernels; needs root
	@scripts/machines.sh

s3: ## the log's copy in a real S3 server, versitygw, which is built once: three minutes
	@scripts/setup-s3.sh
	@go test -count=1 ./internal/feature/evidence/... -run S3 -v
	@echo "s3: write-once puts, lists and findings hold"

chart: ## the Helm chart, rendered by Helm's library and judged by Kubernetes' evaluator of Pod Security
	@cd tools/chart && go vet . && go test -count=1 .
	@echo "chart: every object decodes, every pod is restricted, everything is denied by default"

kubernetes: build ## the chart against a real etcd and kube-apiserver, which are built once: ten minutes of processor
	@scripts/kubernetes.sh

bare: ## make demo and make test on a bare Debian 12, Debian 13 and Ubuntu 24.04, as root and as a user; needs root
	@scripts/bare.sh

fuzz: ## every fuzz target for FUZZTIME (default 10s each)
	@scripts/fuzz.sh

clean:
	@rm -rf bin
