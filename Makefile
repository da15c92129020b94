# Headlight from a checkout: `make app` to see it, `make site` to publish it, `make test` to check it, `make test-all`
# and `make test-release` to check everything.
# PYTHON=/path/to/python3.12 chooses the interpreter, ARGS="--port 8600" goes to `headlight app`.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
APP_INSTALLED := .venv/.app-installed
DEV_INSTALLED := .venv/.dev-installed
SITE_INSTALLED := .venv/.site-installed
REFERENCES_INSTALLED := .venv/.references-installed
NPM_INSTALLED := node_modules/.installed

# A process of tests takes one thread, and up to 2 GB. There is one more than cores: browsers and servers are often
# waited for. In tests/core a free process takes over tests of another; elsewhere a file shares a server or a model,
# and one process runs all its tests. REPORTS=DIR writes a JUnit report of each run to a folder.
PROCESSES := -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --maxprocesses 4
CORE_TESTS = $(BIN)/python -m pytest $(PROCESSES) --dist worksteal tests/core
OTHER_TESTS = $(BIN)/python -m pytest $(PROCESSES) --dist loadfile --no-loadscope-reorder --ignore tests/core
REPORT = $(if $(REPORTS),--junitxml $(REPORTS)/$(1).xml)

.PHONY: app site test test-all test-release check test-lowest coverage lint prose docs notebook bench model-docs browser clean

app: $(APP_INSTALLED)
	@exec $(BIN)/headlight app $(ARGS)

# The browser edition in build/site. ARGS="--model path/to/checkpoint --lessons my-lessons" goes to `headlight site`.
site: $(SITE_INSTALLED)
	@$(BIN)/headlight site --out build/site $(ARGS)

# What every change needs: a few minutes.
test: $(DEV_INSTALLED) browser lint
	$(CORE_TESTS) -m "not slow" $(call REPORT,core)
	$(OTHER_TESTS) -m "not slow" $(call REPORT,other)

# What CI runs: the tests of `make test`, and then the slow ones.
test-all: test $(REFERENCES_INSTALLED)
	$(CORE_TESTS) -m "slow and not release" $(call REPORT,core-slow)
	$(OTHER_TESTS) -m "slow and not release" $(call REPORT,other-slow)

# What only a release needs: every script of benchmarks/, and tests at full size.
test-release: $(REFERENCES_INSTALLED) $(NPM_INSTALLED) browser
	$(OTHER_TESTS) -m release $(call REPORT,release)

# The inner loop: nothing with a browser or a server. What failed last goes first, and the first failure ends it.
check: lint
	$(CORE_TESTS) -x --ff -m "not slow" tests/test_architecture.py tests/test_javascript.py

lint: $(DEV_INSTALLED) $(NPM_INSTALLED) prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/node node_modules/.bin/biome check --error-on-warnings
	$(BIN)/node node_modules/.bin/tsc

# The words and sentences of these documents and of all texts of the app.
PROSE := README.md CONTRIBUTING.md CHANGELOG.md benchmarks/README.md bert_core/assets/*/MODEL_CARD.md "docs/**/*.md" docs/tutorials/headlight.ipynb
prose: $(DEV_INSTALLED) $(NPM_INSTALLED)
	$(BIN)/python -m tools.lint_prose $(PROSE)

# The tests of the library and of the pages with the oldest versions that pyproject.toml allows, in .venv-lowest.
test-lowest: $(BIN)/python
	$(BIN)/python tests/under_lowest.py $(ARGS)

# How many statements of each package the tests of the library and of the pages run; no browser, no server of its own.
coverage: $(REFERENCES_INSTALLED)
	$(CORE_TESTS) --cov --cov-report= tests/app tests/test_architecture.py
	PYTHONPATH=. $(BIN)/python tests/coverage_of_packages.py

docs: $(DEV_INSTALLED)
	$(BIN)/python docs/build.py

# Runs docs/tutorials/headlight.ipynb anew, and keeps what it shows.
notebook: $(DEV_INSTALLED)
	$(BIN)/jupyter execute --inplace docs/tutorials/headlight.ipynb

bench: $(REFERENCES_INSTALLED)
	@set -e; for script in $$(grep -l __main__ benchmarks/*.py); do echo "== $$script"; $(BIN)/python "$$script"; done

# Every figure of docs/results/heads.md and pruning.md, methods.md, the tuned lens, the examples and the profiles, from the bundled weights.
# TEXTS names the folder with the texts; hours, and it goes on where it stopped. ARGS="--only worth,roles" for some.
model-docs: $(DEV_INSTALLED)
	@test -n "$(TEXTS)" || { echo "say where the texts are: make model-docs TEXTS=folder" >&2; exit 1; }
	@PYTHONPATH=. $(BIN)/python docs/model_docs.py "$(TEXTS)" $(ARGS)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Headlight needs Python 3.11 or newer, and '$(PYTHON)' is none: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
	  echo "'$(PYTHON) -m venv' failed: on Debian and Ubuntu, install python3-venv first" >&2; exit 1; }

# The stamps are newer than what they were installed from, so a second start installs nothing.
$(APP_INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e .
	@touch $@

$(SITE_INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[site]'
	@touch $(APP_INSTALLED) $@

$(DEV_INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[dev]'
	@touch $(APP_INSTALLED) $(SITE_INSTALLED) $@

# The programs that slow tests and benchmarks compare with.
$(REFERENCES_INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[dev,references]'
	@touch $(APP_INSTALLED) $(SITE_INSTALLED) $(DEV_INSTALLED) $@

# The JavaScript tools; node and npm themselves are packages of the environment.
$(NPM_INSTALLED): package.json package-lock.json | $(DEV_INSTALLED)
	PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --no-audit --no-fund
	@touch $@

# What the tests need beside Python: a browser, and the proxy that stands before several copies.
browser:
	@command -v chromium >/dev/null && PATH="$$PATH:/usr/sbin" command -v haproxy >/dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y chromium haproxy; \
	else \
	  echo "the tests need 'chromium' and 'haproxy' on the PATH: install them (on Debian: apt-get install chromium haproxy)" >&2; exit 1; \
	fi

# Back to a fresh clone; what a training run wrote under runs/ stays.
clean:
	rm -rf .venv .venv-lowest node_modules build dist *.egg-info .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
