# Berth: everything a person or CI runs. `make up` brings the lab in a box up, `make test` passes the tests.
#
# lab/setup.sh installs what is missing (Debian packages, Go) and prints the environment to build with, so that every
# target below works on a bare machine.

SHELL      := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Two cores are the smallest machine that this project supports; more packages at once only swap.
export GOFLAGS ?= -p=2 -buildvcs=false
# Without cgo everywhere: the images need static binaries, and with one setting builds and tests share their compilations.
export CGO_ENABLED ?= 0
CACHE   := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/berth-lab
export PATH := $(CURDIR)/bin:$(CACHE)/go/bin:/usr/local/go/bin:/usr/sbin:/sbin:$(PATH)

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X github.com/berth-hpc/berth/renderer/command.Version=$(VERSION)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
CUE := cuelang.org/go/cmd/cue
HELM := helm.sh/helm/v3/cmd/helm
SITES = $(notdir $(basename $(wildcard clusters/*.cue)))

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- building ------------------------------------------------------------------------------------------------------

.PHONY: setup
setup:
	@lab/setup.sh

.PHONY: build
build: setup ## build every binary into bin/
	@mkdir -p bin
	@go build -ldflags '-s -w' -o bin/ \
	  ./components/autoscaler/cmd/autoscaler ./components/guard/cmd/guard ./components/guard/cmd/prolog-slurmctld \
	  ./components/advisor/cmd/advisor $(CUE)
	@# With cgo, which the binding of NVIDIA's management library needs: the driver's library is there only in the pod.
	@CGO_ENABLED=1 go build -ldflags '-s -w' -o bin/ ./components/mps/cmd/mps
	@# Only berth carries the version: in the others it would make new images of every commit.
	@go build -ldflags '$(LDFLAGS)' -o bin/ ./renderer/cmd/berth
	@cd lab && go build -o ../bin/ ./cmd/box

.PHONY: images
images: build ## build the images with docker or buildah
	@images/build.sh

# --- the lab in a box ----------------------------------------------------------------------------------------------

.PHONY: up
up: build ## real Kubernetes, Flux and Slurm on this machine, from clusters/lab.cue
	@bin/box up

.PHONY: down
down: ## take the box down and leave nothing behind
	@bin/box down

.PHONY: status
status: ## what the box is doing
	@bin/box status

# --- tests ---------------------------------------------------------------------------------------------------------

.PHONY: test
test: unit lint vet drift smoke ## unit tests, lint, cue vet, drift check, smoke e2e

.PHONY: unit
unit: setup
	@go test ./...
	@CGO_ENABLED=1 go test ./components/mps/card
	@cd lab && go test ./...

.PHONY: lint
lint: setup ## gofmt, go vet, staticcheck
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "not gofmt'ed: $$out"; exit 1; }
	@go vet ./... && cd lab && go vet ./...
	@mkdir -p $(CACHE)/tools && GOBIN=$(CACHE)/tools go install $(STATICCHECK)
	@$(CACHE)/tools/staticcheck ./... && cd lab && $(CACHE)/tools/staticcheck ./...

.PHONY: vet
vet: build ## cue vet and berth vet on every site
	@bin/cue vet -c ./clusters
	@bin/berth vet

.PHONY: drift
drift: build ## the rendered trees are what the sites say
	@bin/berth render --check

.PHONY: smoke
smoke: build
	@lab/e2e.sh smoke

.PHONY: e2e
e2e: build bin/helm ## everything on the box; FEATURE=name for one test, SHARD=i/n for a part, SLURM=26.05 for that release
	@BERTH_E2E_SLURM=$(SLURM) lab/e2e.sh "$(or $(FEATURE),all)" "$(SHARD)"

# The chart is installed with helm's own command, too; nothing else needs it.
bin/helm: go.mod
	@go build -ldflags '-s -w' -o bin/ $(HELM)

.PHONY: soak
soak: build ## half an hour of load and random kills on the box
	@lab/e2e.sh soak

.PHONY: soak-advisor
soak-advisor: build ## half an hour of submissions to the advisor, ten a second, on loopback; its memory must stay flat
	@bin/advisor serve soak

.PHONY: fuzz
fuzz: setup ## SITES (default 10000) mutated sites of SEED (1), from FROM (0); every field explained; FUZZTIME (30s) for every fuzz target
	@BERTH_FUZZ_SITES=$(or $(SITES),10000) BERTH_FUZZ_SEED=$(or $(SEED),1) BERTH_FUZZ_FROM=$(or $(FROM),0) BERTH_FUZZ_COMMANDS=100 \
	  BERTH_FUZZ_SLURMCTLD=$(if $(BERTH_SLURM_ROOT),1,0) \
	  go test -count=1 -v -timeout 12h -run '^(TestMutatedSites|TestCommandAgrees)$$' ./renderer/mutation
	@BERTH_FUZZ_SEED=$(or $(SEED),1) BERTH_EXPLAIN_ALL=1 go test -count=1 -v -timeout 2h -run '^TestEveryFieldExplainsAndTracesBack$$' ./renderer/explain
	@go list ./... | while read -r package; do \
	  for target in $$(go test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
	    echo "$$package $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime "$${FUZZTIME:-30s}" "$$package"; \
	  done; done

# --- figures -------------------------------------------------------------------------------------------------------

.PHONY: anchors
anchors: build ## published numbers beside ours, one line a cell
	@bin/advisor sim anchors --shared ../shared

.PHONY: bench
bench: build ## one line a figure: NAME value unit ratio goal ok|short|undecided; NAME=… for one
	@lab/bench.sh "$(NAME)"

.PHONY: docs
docs: build ## run every command block of README.md and docs/
	@lab/docs.sh

.PHONY: render
render: build ## render every site
	@for site in $(SITES); do bin/berth render $$site; done

.PHONY: clean
clean:
	@rm -rf bin dist
