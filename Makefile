# Everything a person does with this project. `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

NODES ?= 2
NAME ?= default
SEEDS ?= 20000
FROM ?= 0
NAMESPACE ?= kube-system
# What is rendered for a cluster that nobody asked.
KUBE_VERSION ?= 1.30.0
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kube-node-ready
DENY_VERSION := 0.20.2
DENY := $(CACHE)/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
MUTANTS_VERSION := 27.1.0
MUTANTS := $(CACHE)/cargo-mutants-$(MUTANTS_VERSION)/bin/cargo-mutants
CARGO := cargo --locked
LAB := $(CARGO) run --quiet -p lab --
# Where cargo puts what it builds.
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# Static, so that the image needs nothing else. C code of dependencies is compiled by musl's own wrapper.
ARCH := $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,amd64)
MUSL_amd64 := x86_64-unknown-linux-musl
MUSL_arm64 := aarch64-unknown-linux-musl
MUSL := $(MUSL_$(ARCH))
CROSS := $(CACHE)/musl-arm64
export CC_x86_64_unknown_linux_musl := musl-gcc
export CC_aarch64_unknown_linux_musl := $(if $(filter arm64,$(ARCH)),musl-gcc,$(CROSS)/musl-gcc)
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER := $(if $(filter arm64,$(ARCH)),cc,aarch64-linux-gnu-gcc)
# There are machines with pages of 64 KiB, and what is built for them runs with smaller ones, too.
export AARCH64_UNKNOWN_LINUX_MUSL_JEMALLOC_SYS_WITH_LG_PAGE := 16
BUILD := $(CARGO) build -p kube-node-ready

# What a build that is to be shipped says of itself. VERSION=1.0.0 gives it another version than the source has.
IMAGE = ghcr.io/kube-node-ready/kube-node-ready:$(IMAGE_VERSION)
IMAGE_VERSION = $(or $(VERSION),$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml))
COMMIT_HASH := $(or $(COMMIT_HASH),$(shell git describe --always --dirty --abbrev=7 --exclude='*' 2>/dev/null))
BUILD_DATE := $(or $(BUILD_DATE),$(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null))
STAMP = $(if $(VERSION),KUBE_NODE_READY_VERSION='$(VERSION)') \
  $(if $(COMMIT_HASH),KUBE_NODE_READY_COMMIT='$(COMMIT_HASH)') \
  $(if $(BUILD_DATE),KUBE_NODE_READY_BUILD_DATE='$(BUILD_DATE)')

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

.PHONY: demo
demo: setup setup-go setup-musl ## install the chart on a real cluster and see nodes open, fail and recover (KEEP=1 leaves the cluster up)
	@[ "$$(id -u)" = 0 ] || { echo "make demo needs root: nodes are made of Linux namespaces"; exit 1; }
	@$(LAB) build
	@echo "building the program and the demo: minutes the first time" >&2
	@$(BUILD) --quiet --target $(MUSL) --profile e2e
	@KUBE_NODE_READY_BINARY=$(TARGET)/$(MUSL)/e2e/kube-node-ready \
	  $(CARGO) run --quiet -p knr-e2e --example demo

.PHONY: test
test: lint deny test-unit test-lab test-e2e ## install what is missing and run everything: format, lints, licences, all tests

.PHONY: lint
lint: setup setup-go ## check the format and the lints; a warning is an error
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
	$(CARGO) test -p knr-core -p knr-sim -p knr-k8s -p kube-node-ready --test '*'
	$(CARGO) test --workspace --doc

# First the quick tests. What they do not notice goes to the laws and the simulation as well, which take a minute
# each time. Unoptimised code needs more stack than a test has by default.
.PHONY: mutants
mutants: setup $(MUTANTS) ## break the rules in every small way and see that a test notices (long)
	@mkdir -p target
	RUST_MIN_STACK=33554432 $(MUTANTS) mutants -p knr-core --profile mutants \
	  -C=--lib -C=--test=cases -C=--test=generated || [[ $$? = [23] ]] # some went unnoticed, or some ran indefinitely
	$(MUTANTS) mutants -p knr-core --iterate --test-package knr-core,knr-sim -C=--lib -C=--test='*'

.PHONY: generate
generate: setup ## regenerate what is generated in docs/ and in the chart
	$(CARGO) run --quiet -p knr-core --example generate
	$(CARGO) run --quiet -p knr-web --example document
	GENERATE=1 $(CARGO) test --quiet -p knr-k8s --lib chart::the_permissions_in_the_chart_are_up_to_date
	GENERATE=1 $(CARGO) test --quiet -p knr-k8s --test rbac_page
	GENERATE=1 $(CARGO) test --quiet -p kube-node-ready --bins _up_to_date

.PHONY: test-lab
test-lab: setup setup-go ## run the tests on real clusters; needs root
	@[ "$$(id -u)" = 0 ] || { echo "make test-lab needs root: nodes are made of Linux namespaces"; exit 1; }
	$(LAB) build
	$(CARGO) test --quiet -p lab --test '*' --no-run
	$(TWO_AT_A_TIME) $(LAB_FILES:%=lab-file-%)

.PHONY: test-e2e
test-e2e: setup setup-go setup-musl ## run the product on real clusters (ARGS='--test smoke' for one file); needs root
	@[ "$$(id -u)" = 0 ] || { echo "make test-e2e needs root: nodes are made of Linux namespaces"; exit 1; }
	$(LAB) build
	$(BUILD) --target $(MUSL) --profile e2e
	$(if $(ARGS),$(E2E) $(ARGS),$(CARGO) test --quiet -p knr-e2e --test '*' --no-run)
	$(if $(ARGS),,$(E2E_ALL))

.PHONY: test-helm4
test-helm4: setup setup-go ## run the tests of the chart with Helm 4, which is built for it the first time (minutes); needs root
	$(LAB) build helm4
	@LAB_HELM=4 $(MAKE) test-e2e ARGS='--test chart'

# Files of tests that mostly wait, two at a time, and of each one test at a time: each makes clusters of its own names.
# What one says comes whole when it ends. Failed ones are named, and hold up no other. A node takes eight of the inotify instances of which a user may
# have 128 by default, and two files have up to twelve nodes: where too few are left, it is one at a time.
TWO_AT_A_TIME = RUST_TEST_THREADS=1 $(MAKE) --jobs=$(if $(call enough_inotify),2,1) --output-sync=target --keep-going
enough_inotify = $(shell limit="$$(cat /proc/sys/fs/inotify/max_user_instances)"; \
  used="$$({ find /proc/[0-9]*/fd -lname '*inotify*' 2>/dev/null || true; } | wc -l)"; [ $$((limit - used)) -lt 120 ] || echo yes)
LAB_FILES := $(basename $(notdir $(wildcard crates/lab/tests/*.rs)))
# The large ones first, so that none of them is left alone at the end.
E2E_FILES := $(notdir $(patsubst %/main.rs,%,$(wildcard e2e/tests/*/main.rs))) $(basename $(notdir $(wildcard e2e/tests/*.rs)))
# These measure time, and want the machine for themselves.
ALONE := leaders neighbours
E2E_ALL = status=0; $(TWO_AT_A_TIME) $(patsubst %,e2e-file-%,$(filter-out $(ALONE),$(E2E_FILES))) || status=$$?; \
  $(MAKE) --keep-going $(ALONE:%=e2e-file-%) || status=$$?; exit $$status
E2E := KUBE_NODE_READY_BINARY=$(TARGET)/$(MUSL)/e2e/kube-node-ready $(CARGO) test -p knr-e2e

.PHONY: $(LAB_FILES:%=lab-file-%) $(E2E_FILES:%=e2e-file-%)
$(LAB_FILES:%=lab-file-%): lab-file-%:
	@$(CARGO) test -p lab --test $*
$(E2E_FILES:%=e2e-file-%): e2e-file-%:
	@$(E2E) --test $*

.PHONY: build
build: setup ## build the program for this machine, bin/kube-node-ready (VERSION=1.0.0 to call it so)
	$(STAMP) $(BUILD) --release
	@install -D $(TARGET)/release/kube-node-ready bin/kube-node-ready
	@bin/kube-node-ready --version

# There is one program. Under these names it is its subcommand.
.PHONY: build-controller
build-controller: build ## build the program, and bin/kube-node-ready-controller, which starts it as controller
	@ln -sfn kube-node-ready bin/kube-node-ready-controller

.PHONY: build-worker
build-worker: build ## build the program, and bin/kube-node-ready-worker, which starts it as worker
	@ln -sfn kube-node-ready bin/kube-node-ready-worker

.PHONY: build-all
build-all: build-controller build-worker ## build the program, with all its names

.PHONY: binary
binary: binary-$(ARCH) ## build the product as it is shipped: one static program, in dist/
	@ls -lhL dist/kube-node-ready

.PHONY: binary-amd64 binary-arm64
binary-amd64 binary-arm64: binary-%: setup setup-musl-%
	$(STAMP) $(BUILD) --target $(MUSL_$*) --profile dist
	@install -D $(TARGET)/$(MUSL_$*)/dist/kube-node-ready dist/$*/kube-node-ready
	@$(if $(filter $(ARCH),$*),ln -sfn $*/kube-node-ready dist/kube-node-ready)

.PHONY: image
image: image-$(ARCH) ## build the image, as an archive in dist/, with docker, podman or buildah (VERSION=1.0.0)

.PHONY: docker-build
docker-build: image ## the same as image

.PHONY: image-amd64 image-arm64
image-amd64 image-arm64: image-%: binary-% setup-image
	@rm -f dist/kube-node-ready-$*.tar
	$(call save_$(ENGINE),$*,dist/kube-node-ready-$*.tar)
	@ls -lh dist/kube-node-ready-$*.tar

# Both programs and both images; that of the other kind of machine is run in an emulator. The third archive has both
# images under one name, whatever made them: a registry that is given it hands each machine its own.
.PHONY: release
release: image-amd64 image-arm64 setup-qemu setup-buildah ## build programs and images for amd64 and arm64, and run both programs
	dist/amd64/kube-node-ready --version | grep -F 'kube-node-ready $(IMAGE_VERSION)'
	qemu-aarch64-static dist/arm64/kube-node-ready --version | grep -F 'kube-node-ready $(IMAGE_VERSION)'
	qemu-aarch64-static dist/arm64/kube-node-ready check --help
	@rm -rf dist/kube-node-ready.tar target/buildah-both
	$(call buildah,both) manifest create both
	for arch in amd64 arm64; do $(call buildah,both) manifest add both docker-archive:dist/kube-node-ready-$$arch.tar; done
	$(call buildah,both) manifest push --quiet --all both 'oci-archive:dist/kube-node-ready.tar:$(IMAGE)'
	for arch in amd64 arm64; do $(call buildah,both) manifest inspect both | grep -F "\"$$arch\""; done
	@rm -rf target/buildah-both
	@ls -l dist/*/kube-node-ready dist/*.tar

# Hooks are for Helm: applied by hand, the one for uninstalling would open all gates at once.
.PHONY: manifests
manifests: setup setup-go ## render the chart for people without Helm, into dist/manifests.yaml (VALUES=file, NAMESPACE=kube-system)
	@mkdir -p dist
	@$(LAB) helm template kube-node-ready deploy/helm/kube-node-ready --no-hooks --kube-version $(KUBE_VERSION) \
	  --namespace $(NAMESPACE) $(addprefix --values ,$(VALUES)) > dist/manifests.yaml
	@echo "dist/manifests.yaml: $$(grep -c '^kind:' dist/manifests.yaml) objects"

.PHONY: lab-up
lab-up: setup setup-go ## make a cluster (NODES=2, NAME=default)
	@$(LAB) up --nodes $(NODES) --name $(NAME)

.PHONY: lab-down
lab-down: setup ## end the cluster (NAME=default)
	@$(LAB) down --name $(NAME)

.PHONY: sim
sim: setup ## run the rules in a hostile simulated cluster (SEEDS=20000 FROM=0, or SEED=n for one with its story)
	$(CARGO) run --quiet --release -p knr-sim -- $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --from $(FROM))
	$(if $(SEED),,$(CARGO) run --quiet --release -p knr-sim -- --exhaustive)

.PHONY: mistakes
mistakes: setup ## make each mistake of a list in a copy of the rules and see that the simulation notices (long; ARGS=B4 for some)
	$(CARGO) run --quiet --release -p knr-sim --example mistakes -- $(ARGS)

.PHONY: bench
bench: bench-rules bench-product ## measure the speed of the rules, and of the product next to a bare writer; needs root

.PHONY: bench-rules
bench-rules: setup ## measure what a decision costs in clusters of 100, 10,000 and 100,000 nodes
	$(CARGO) run --quiet --release -p knr-sim --example bench

.PHONY: bench-product
bench-product: binary setup-go ## measure the product on the lab, next to a bare writer (ARGS='--part kwok'); needs root
	@[ "$$(id -u)" = 0 ] || { echo "make bench-product needs root: nodes are made of Linux namespaces"; exit 1; }
	$(LAB) build
	KUBE_NODE_READY_BINARY=$(CURDIR)/dist/kube-node-ready \
	  $(CARGO) run --quiet --release -p knr-e2e --example bench -- $(ARGS)

.PHONY: bench-surge
bench-surge: ## measure ten thousand openings at a hundred a second: conditions, events and the log (15 minutes); needs root
	@$(MAKE) bench-product ARGS='--part surge $(ARGS)'

.PHONY: bench-lab
bench-lab: setup setup-go ## measure the lab: up, a further node, reboot, down; COLD=1 adds the first build of all tools
	$(CARGO) build --quiet -p lab
	$(CARGO) run --quiet -p lab --example bench -- $(if $(COLD),--cold)

.PHONY: clean
clean: ## remove what was built in this folder
	cargo clean
	rm -rf bin dist

# --- what the targets above need --------------------------------------------------------------------------------

install = { echo "installing $(1)"; apt-get update -q >/dev/null; \
  DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $(1) >/dev/null; }

.PHONY: setup
setup:
	@command -v cc >/dev/null || $(call install,gcc libc6-dev)
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 \
	  || rustup toolchain install "$$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)" \
	       --profile minimal --component rustfmt --component clippy

# In the folder of a tool, because a Go that is older but new enough to fetch its successor does so there.
GO_NEEDED = $(shell sed -n 's/^go //p' crates/lab/tools/*/go.mod | sort -V | tail -n 1)
.PHONY: setup-go
setup-go:
	@found="$$(cd crates/lab/tools/helm && go env GOVERSION 2>/dev/null || true)"; \
	  [ -n "$$found" ] && printf 'go%s\n%s\n' '$(GO_NEEDED)' "$$found" | sort -VC || { \
	    echo "Go $(GO_NEEDED) or newer is needed: Kubernetes and Helm are built from source here. Found: $${found:-no go on PATH}"; exit 1; }

.PHONY: setup-musl setup-musl-amd64 setup-musl-arm64
setup-musl: setup-musl-$(ARCH)

ifeq ($(ARCH),amd64)
setup-musl-arm64: $(CROSS)/musl-gcc
endif
setup-musl-amd64 setup-musl-arm64: setup-musl-%:
	@command -v musl-gcc >/dev/null || $(call install,musl-tools)
	@rustup target list --installed | grep -qx $(MUSL_$*) || rustup target add $(MUSL_$*)

# Debian has musl-gcc for the machine it runs on alone. Here its arm64 files get another compiler, in a folder of ours.
# Without -mno-outline-atomics, GCC calls functions that want the other C library.
APT_ARM64 := apt-get -q -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 \
  -o Dir::State::Lists=$(CROSS)/lists -o APT::Sandbox::User=root
$(CROSS)/musl-gcc:
	@command -v aarch64-linux-gnu-gcc >/dev/null || $(call install,gcc-aarch64-linux-gnu)
	@echo "fetching musl for arm64"; rm -rf $(CROSS); mkdir -p $(CROSS)/lists/partial
	@cd $(CROSS) && $(APT_ARM64) update >/dev/null && $(APT_ARM64) download musl-dev:arm64 >/dev/null
	@cd $(CROSS) && dpkg-deb -x musl-dev_*_arm64.deb . && sed -i 's|/usr/|$(CROSS)&|g' usr/lib/aarch64-linux-musl/musl-gcc.specs
	@printf '#!/bin/sh\nexec aarch64-linux-gnu-gcc "$$@" -mno-outline-atomics -specs %s\n' \
	  $(CROSS)/usr/lib/aarch64-linux-musl/musl-gcc.specs >$@ && chmod +x $@

.PHONY: setup-qemu
setup-qemu:
	@command -v qemu-aarch64-static >/dev/null || $(call install,qemu-user-static)

# Docker and podman count if they can be used, and not if they are merely there. Buildah needs no daemon and, as the
# image has nothing to run while it is built, no namespaces either.
ENGINE = $(shell if docker info; then echo docker >&3; elif podman info; then echo podman >&3; \
  elif command -v buildah; then echo buildah >&3; fi 3>&1 >/dev/null 2>&1)
.PHONY: setup-image
setup-image:
	@[ -n "$(ENGINE)" ] || $(call install,buildah)

.PHONY: setup-buildah
setup-buildah:
	@command -v buildah >/dev/null || $(call install,buildah)

# An architecture, and the archive to write.
image_arguments = --platform linux/$(1) --build-arg TARGETARCH=$(1) --build-arg VERSION='$(IMAGE_VERSION)' \
  --build-arg COMMIT_HASH='$(COMMIT_HASH)' --build-arg BUILD_DATE='$(BUILD_DATE)' -t '$(IMAGE)'
image_time = --isolation chroot $(if $(BUILD_DATE),--timestamp "$$(date -d '$(BUILD_DATE)' +%s)")
buildah = buildah --storage-driver vfs --root $(CURDIR)/target/buildah-$(1)/root --runroot $(CURDIR)/target/buildah-$(1)/run
save_docker = docker build $(image_arguments) . && docker save -o $(2) '$(IMAGE)'
save_podman = podman build $(image_time) $(image_arguments) . && podman save --format docker-archive -o $(2) '$(IMAGE)'
save_buildah = $(call buildah,$(1)) build --quiet $(image_time) $(image_arguments) . && \
  $(call buildah,$(1)) push --quiet '$(IMAGE)' 'docker-archive:$(2):$(IMAGE)' && rm -rf target/buildah-$(1)

$(DENY):
	@echo "building cargo-deny $(DENY_VERSION)"
	cargo install --quiet --locked --debug cargo-deny --version $(DENY_VERSION) --root $(dir $(patsubst %/,%,$(dir $@)))

$(MUTANTS):
	@echo "building cargo-mutants $(MUTANTS_VERSION)"
	cargo install --quiet --locked --debug cargo-mutants --version $(MUTANTS_VERSION) --root $(dir $(patsubst %/,%,$(dir $@)))
