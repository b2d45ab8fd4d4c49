# The developers' targets; `make help` lists them. Each one sets up what it needs.
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-rl demo-cluster test test-clients test-frameworks test-frameworks-cluster test-console test-cgroup-v2 test-cluster test-outages test-alerts test-artifacts test-upgrade cluster cluster-images cluster-down check bench bench-cluster loadtest loadtest-cluster format generate lock clean model mutation site release release-check publish version

RUN := .venv/bin
export PYTHONDONTWRITEBYTECODE :=

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-24s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## create .venv with the pinned dependencies and the packages
	@bash tools/setup.sh

demo: setup  ## grade about 1,000 HumanEval rollouts in local sandboxes; report in reports/
	$(RUN)/sandlot demo

test: setup  ## run the tests that need only this machine
	bash tools/test.sh

test-clients: setup  ## run the tests of published clients of Prime and others, which a package index gives
	$(RUN)/python -m tests.prime.environments
	$(RUN)/python -m tests.frameworks.listed
	SANDLOT_WHOLE_SUITES=1 SCOPE=clients bash tools/test.sh

test-frameworks: setup  ## run the suites of frameworks with the newest release of each: ARGS="--pinned PACKAGE..."
	$(RUN)/python -m tests.frameworks $(ARGS)

test-frameworks-cluster: setup  ## run the suites of harbor, Inspect AI and E2B under gVisor on a cluster: cluster up, images, tests, down
	bash tools/test_frameworks_cluster.sh $(ARGS)

test-console: setup  ## run the tests of the web console in Debian's Chromium: ARGS="-k name", SCREENSHOTS=docs/console
	bash tools/test_console.sh $(ARGS)

test-cgroup-v2: setup  ## run the tests of control groups in a virtual machine with cgroup v2 alone: ARGS="-k name FILE..."
	$(RUN)/python -m tests.cgroup_v2 $(ARGS)

test-upgrade: setup  ## upgrade from an earlier commit's images and chart with sandboxes running: FROM=COMMIT (default: the release before)
	SANDLOT_UPGRADE_FROM="$(FROM)" bash tools/test_upgrade.sh

cluster: setup  ## start a kind cluster with gVisor for the tests; prints its kubeconfig's path
	$(RUN)/python -m tests.cluster up

cluster-images: setup  ## build the images and load them on the cluster's nodes
	$(RUN)/python -m tests.cluster load-image $$($(RUN)/python -m images build)

test-cluster: setup  ## run the tests that need a cluster, Kubernetes' programs or published clients: cluster up, images, chart, tests, down
	bash tools/test_cluster.sh

test-outages: setup  ## run only those that kill nodes, the API server and etcd
	bash tools/test_outages.sh

test-alerts: setup  ## cause every alert's fault on a cluster that a Prometheus watches: ARGS="-k name"
	bash tools/test_alerts.sh $(ARGS)

test-artifacts: setup  ## install a release of the tree from its artifacts alone, on a cluster: ARGS="-k name"
	bash tools/test_artifacts.sh $(ARGS)

demo-rl: setup  ## train a small policy whose every program runs in a local sandbox; report in reports/
	$(RUN)/sandlot demo-rl

demo-cluster: setup  ## run the demo in gVisor sandboxes on a cluster: cluster up, images, chart, demo, down
	bash tools/demo_cluster.sh

cluster-down: setup  ## remove the cluster; builds stay in the cache
	$(RUN)/python -m tests.cluster down

MINUTES := 10
model: setup  ## run the state machine models for MINUTES=10 with new examples
	$(RUN)/python tools/model.py --minutes $(MINUTES) $(ARGS)

mutation: setup  ## run mutation tests, which find code without a test: GROUP=sdk-retry (or all)
	nice -n 10 $(RUN)/python tools/mutation.py $(GROUP) $(ARGS)

check: setup  ## check lint, types, import rules, generated files, links of the documentation
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/python tools/async_to_sync.py --check
	$(RUN)/python tools/protobuf.py --check
	$(RUN)/python tools/python_driver.py --check
	$(RUN)/python tools/chart_docs.py --check
	$(RUN)/python tools/definition_fields.py --check
	$(RUN)/python tools/error_page.py --check
	$(RUN)/python tools/frameworks_table.py --check
	$(RUN)/python -m images generate --check
	$(RUN)/lint-imports
	set -e; for package in contract kube sidecar gateway controller node sdk grade; do (cd $$package && ../$(RUN)/deptry src); done
	$(RUN)/pyright --warnings
	$(RUN)/python tools/check_text.py
	$(RUN)/python tools/file_lengths.py
	bash tools/site.sh

bench: setup  ## measure ratios to floors of the same run; fails if a bound is missed
	$(RUN)/python -m loadtests.bench

bench-cluster: setup  ## compare the chart on a cluster with pods/exec and spawns in the pod
	bash tools/bench_cluster.sh

loadtest: setup  ## load a stack like a training run: PROFILE=steady (or all), ARGS="--short"
	$(RUN)/python -m loadtests.run $(PROFILE) $(ARGS)

loadtest-cluster: setup  ## run the load tests on a cluster: cluster up, images, chart, load, down
	bash tools/loadtest_cluster.sh $(PROFILE) $(ARGS)

format: setup  ## format the code
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

generate: setup  ## write the generated files
	$(RUN)/python tools/async_to_sync.py
	$(RUN)/python tools/protobuf.py
	$(RUN)/python tools/python_driver.py
	$(RUN)/python tools/chart_docs.py
	$(RUN)/python tools/definition_fields.py
	$(RUN)/python tools/error_page.py
	$(RUN)/python tools/frameworks_table.py
	$(RUN)/python -m images generate

site: setup  ## build the documentation in site/, usable without a network; fails on broken links
	bash tools/site.sh

lock: setup  ## resolve the dependencies again
	bash tools/lock.sh

RELEASE = "$(VERSION)" $(if $(OUT),--out "$(OUT)") $(if $(REGISTRY),--registry "$(REGISTRY)")

release: setup  ## build a release in dist/VERSION: VERSION=1.2.3 REGISTRY=registry.example/sandlot; OUT=DIR; DIRTY=1 for a trial
	$(RUN)/python -m release build $(RELEASE) $(if $(DIRTY),--dirty)

release-check: setup  ## build it again from a clone, without caches, and compare the digests: VERSION and REGISTRY of the release
	$(RUN)/python -m release check $(RELEASE)

publish: setup  ## push the images and the chart of dist/VERSION: VERSION=1.2.3 REGISTRY=registry.example/sandlot
	$(RUN)/python -m release publish $(RELEASE)

version: setup  ## write the next release's version in packages, chart and docs/install.md: VERSION=1.2.3
	$(RUN)/python -m release version "$(VERSION)"

clean:  ## remove what the targets created in the tree
	rm -rf .venv .venv-site site dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage reports
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
