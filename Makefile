# Everything a person does with this project. `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

NODES ?= 2
NAME ?= default
SEEDS ?= 20000
FROM ?= 0
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kube-node-ready
DENY_VERSION := 0.20.2
DENY := $(CACHE)/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
MUTANTS_VERSION := 27.1.0
MUTANTS := $(CACHE)/cargo-mutants-$(MUTANTS_VERSION)/bin/cargo-mutants
CARGO := cargo --locked
LAB := $(CARGO) run --quiet -p lab --
# Static, so that the image needs nothing else. C code of dependencies is compiled by musl's own wrapper.
MUSL := $(shell uname -m)-unknown-linux-musl
BUILD := CC_$(subst -,_,$(MUSL))=musl-gcc $(CARGO) build --target $(MUSL) -p kube-node-ready

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.PHONY: demo
demo: setup ## show, on a real cluster, the problem this project solves (KEEP=1 leaves the cluster up)
	@$(CARGO) run --quiet -p lab --example demo

.PHONY: test
test: lint deny test-unit test-lab test-e2e ## install what is missing and run everything: format, lints, licences, all tests

.PHONY: lint
lint: setup ## check the format and the lints; a warning is an error
	cargo fmt --all --check
	$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --workspace --no-deps --document-private-items
	unformatted="$$(gofmt -l crates/lab/tools)"; [ -z "$$unformatted" ] || { echo "gofmt: $$unformatted"; exit 1; }

.PHONY: deny
deny: setup $(DENY) ## check licences, sources and banned crates of all dependencies
	$(DENY) --locked --log-level error check bans licenses sources

.PHONY: advisories
advisories: setup $(DENY) ## check dependencies against the advisory database, which is fetched for this
	$(DENY) --locked check advisories

.PHONY: test-unit
test-unit: setup ## run the tests that need no cluster
	$(CARGO) test --workspace --lib --bins --examples
	$(CARGO) test -p knr-core -p knr-sim --test '*'
	$(CARGO) test --workspace --doc

# First the quick tests. What they do not notice goes to the laws and the simulation as well, which take a minute
# each time. Unoptimised code needs more stack than a test has by default.
.PHONY: mutants
mutants: setup $(MUTANTS) ## break the rules in every small way and see that a test notices (long)
	@mkdir -p target
	RUST_MIN_STACK=33554432 $(MUTANTS) mutants -p knr-core --profile mutants \
	  -C=--lib -C=--test=cases -C=--test=generated || [[ $$? = [23] ]] # some went unnoticed, or some ran for ever
	$(MUTANTS) mutants -p knr-core --iterate --test-package knr-core,knr-sim -C=--lib -C=--test='*'

.PHONY: generate
generate: setup ## write what is generated in docs/ anew, from the code
	$(CARGO) run --quiet -p knr-core --example generate
	$(CARGO) run --quiet -p knr-web --example document
	GENERATE=1 $(CARGO) test --quiet -p kube-node-ready --bins reference::the_reference_is_up_to_date

.PHONY: test-lab
test-lab: setup ## run the tests on real clusters; needs root
	@[ "$$(id -u)" = 0 ] || { echo "make test-lab needs root: nodes are made of Linux namespaces"; exit 1; }
	$(LAB) build
	$(CARGO) test -p lab --test '*'

.PHONY: test-e2e
test-e2e: setup setup-musl ## run the product on real clusters (ARGS='--test smoke' for one file); needs root
	@[ "$$(id -u)" = 0 ] || { echo "make test-e2e needs root: nodes are made of Linux namespaces"; exit 1; }
	$(LAB) build
	$(BUILD) --profile e2e
	KUBE_NODE_READY_BINARY=$(CURDIR)/target/$(MUSL)/e2e/kube-node-ready \
	  $(CARGO) test -p knr-e2e $(or $(ARGS),--test '*')

.PHONY: binary
binary: setup setup-musl ## build the product as it is shipped: one static program, in dist/
	$(BUILD) --profile dist
	@mkdir -p dist && install target/$(MUSL)/dist/kube-node-ready dist/ && ls -lh dist/kube-node-ready

.PHONY: lab-up
lab-up: setup ## make a cluster (NODES=2, NAME=default)
	@$(LAB) up --nodes $(NODES) --name $(NAME)

.PHONY: lab-down
lab-down: setup ## end the cluster (NAME=default)
	@$(LAB) down --name $(NAME)

.PHONY: sim
sim: setup ## run the rules in a hostile simulated cluster (SEEDS=20000 FROM=0, or SEED=n for one with its story)
	$(CARGO) run --quiet --release -p knr-sim -- $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --from $(FROM))
	$(if $(SEED),,$(CARGO) run --quiet --release -p knr-sim -- --exhaustive)

.PHONY: mistakes
mistakes: setup ## make each mistake of a list in a copy of the rules and see that the simulation notices (long)
	$(CARGO) run --quiet --release -p knr-sim --example mistakes

.PHONY: bench
bench: bench-rules bench-product ## measure the speed of the rules, and of the product next to a bare writer; needs root

.PHONY: bench-rules
bench-rules: setup ## measure what a decision costs in clusters of 100, 10,000 and 100,000 nodes
	$(CARGO) run --quiet --release -p knr-sim --example bench

.PHONY: bench-product
bench-product: binary ## measure the product on the lab, next to a bare writer (ARGS='--part kwok'); needs root
	@[ "$$(id -u)" = 0 ] || { echo "make bench-product needs root: nodes are made of Linux namespaces"; exit 1; }
	$(LAB) build
	KUBE_NODE_READY_BINARY=$(CURDIR)/dist/kube-node-ready \
	  $(CARGO) run --quiet --release -p knr-e2e --example bench -- $(ARGS)

.PHONY: bench-lab
bench-lab: setup ## measure the lab: up, a further node, reboot, down; COLD=1 adds the first build of all tools
	$(CARGO) build --quiet -p lab
	$(CARGO) run --quiet -p lab --example bench -- $(if $(COLD),--cold)

.PHONY: clean
clean: ## remove what was built in this folder
	cargo clean

# --- what the targets above need --------------------------------------------------------------------------------

.PHONY: setup
setup:
	@command -v cc >/dev/null || { echo "installing a C linker for Rust"; apt-get update -q >/dev/null; \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends gcc libc6-dev >/dev/null; }
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 \
	  || rustup toolchain install "$$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)" \
	       --profile minimal --component rustfmt --component clippy
	@command -v go >/dev/null || { echo "Go 1.26 or newer is needed: the lab builds Kubernetes from source"; exit 1; }

.PHONY: setup-musl
setup-musl:
	@command -v musl-gcc >/dev/null || { echo "installing musl's C compiler"; apt-get update -q >/dev/null; \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends musl-tools >/dev/null; }
	@rustup target list --installed | grep -qx $(MUSL) || rustup target add $(MUSL)

$(DENY):
	@echo "building cargo-deny $(DENY_VERSION)"
	cargo install --quiet --locked --debug cargo-deny --version $(DENY_VERSION) --root $(dir $(patsubst %/,%,$(dir $@)))

$(MUTANTS):
	@echo "building cargo-mutants $(MUTANTS_VERSION)"
	cargo install --quiet --locked --debug cargo-mutants --version $(MUTANTS_VERSION) --root $(dir $(patsubst %/,%,$(dir $@)))
