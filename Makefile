# What a person does with this repository. Every target sets up what it needs; see `make help`.
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-cluster test test-cluster test-outages cluster cluster-images cluster-down check bench bench-cluster loadtest loadtest-cluster format generate lock clean model mutation site

RUN := .venv/bin
export PYTHONDONTWRITEBYTECODE :=

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## make .venv with the pinned dependencies and the packages
	@bash tools/setup.sh

demo: setup  ## grade about 1,000 HumanEval rollouts in local sandboxes; report in reports/
	$(RUN)/sandlot demo

test: setup  ## all tests that need nothing but this machine
	bash tools/test.sh

cluster: setup  ## a kind cluster with gVisor for the tests; prints its kubeconfig's path
	$(RUN)/python -m tests.cluster up

cluster-images: setup  ## make the images and bring them to the cluster's nodes
	$(RUN)/python -m tests.cluster load-image $$($(RUN)/python -m images build)

test-cluster: setup  ## the tests that need a Kubernetes or its programs: cluster up, images, chart, tests, down
	bash tools/test_cluster.sh

test-outages: setup  ## of these, only the ones that kill nodes, the API server and etcd
	bash tools/test_outages.sh

demo-cluster: setup  ## the demo in gVisor sandboxes on a real Kubernetes: cluster up, images, chart, demo, down
	bash tools/demo_cluster.sh

cluster-down: setup  ## take the cluster away; what was built stays in the cache
	$(RUN)/python -m tests.cluster down

MINUTES := 10
model: setup  ## run the models of state machines for MINUTES=10, each with new examples
	$(RUN)/python tools/model.py --minutes $(MINUTES) $(ARGS)

mutation: setup  ## change the code in small ways and see which changes no test notices: GROUP=sdk-retry (or all)
	nice -n 10 $(RUN)/python tools/mutation.py $(GROUP) $(ARGS)

check: setup  ## lint, types, architecture contracts, generated files, links of the documentation
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/python tools/async_to_sync.py --check
	$(RUN)/python tools/protobuf.py --check
	$(RUN)/python tools/chart_docs.py --check
	$(RUN)/python tools/error_page.py --check
	$(RUN)/python -m images generate --check
	$(RUN)/lint-imports
	set -e; for package in contract kube sidecar gateway controller sdk grade; do (cd $$package && ../$(RUN)/deptry src); done
	$(RUN)/pyright --warnings
	$(RUN)/python tools/check_text.py
	bash tools/site.sh

bench: setup  ## measure against floors in the same run; fails when a bound is missed
	$(RUN)/python -m loadtests.bench

bench-cluster: setup  ## measure the chart on a real Kubernetes against pods/exec and spawns in the pod
	bash tools/bench_cluster.sh

loadtest: setup  ## load a stack as a training run does: PROFILE=steady (or all), ARGS="--short"
	$(RUN)/python -m loadtests.run $(PROFILE) $(ARGS)

loadtest-cluster: setup  ## the same on a real Kubernetes: cluster up, images, chart, load, down
	bash tools/loadtest_cluster.sh $(PROFILE) $(ARGS)

format: setup  ## format the code
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

generate: setup  ## write the generated files again
	$(RUN)/python tools/async_to_sync.py
	$(RUN)/python tools/protobuf.py
	$(RUN)/python tools/chart_docs.py
	$(RUN)/python tools/error_page.py
	$(RUN)/python -m images generate

site: setup  ## the documentation as a site that needs no network, in site/; broken links and anchors fail
	bash tools/site.sh

lock: setup  ## resolve the dependencies again
	bash tools/lock.sh

clean:  ## remove what the targets made inside the tree
	rm -rf .venv .venv-site site .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage reports
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
