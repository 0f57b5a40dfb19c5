# make demo · tools · test · test-board · proofs · lint · docs · release · pipeline · firmware · flash · deploy · bench · size · clean
#
# Everything is installed into .venv and build; nothing else on the machine is touched, except that
# mosquitto, node and Chromium are installed with apt-get where that is allowed, by targets that need
# them.
# After `make test`, `.venv/bin/python -m flatmq_rigs --help` lists every other measurement.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what it imports; to compile all that is installed takes longer than to install it.
# It must keep that, or each of hundreds of processes compiles pandas and pyspark anew.
unexport PYTHONDONTWRITEBYTECODE
# A package without pyproject.toml, as pyspark, is built in a way that no pip calls deprecated, and
# its wheel, which is unpacked at once, is not compressed, which takes longer than all else.
PIP_INSTALL = DIST_EXTRA_CONFIG=$(CURDIR)/$(VENV)/wheel.cfg $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --use-pep517
# The processes that run the tests, each with its own brokers; 0 runs all in one. Many tests wait
# rather than compute, so there are more than most machines have cores.
WORKERS ?= 4
STUBS := micropython-esp32-stubs==1.28.0.post4 micropython-rp2-stubs==1.28.0.post4 \
  micropython-unix-stubs==1.28.0.post1
STDLIB_STUBS := micropython-stdlib-stubs==1.28.0.post6
# The 32-bit MicroPython that weighs the client; it runs under node.
WASM := @micropython/micropython-webassembly-pyscript@1.27.0
AEDES := aedes@1.2.0
# For each stamp below, the package's extras and the groups of what only contributors need.
EXTRAS_demo := demo
EXTRAS_boards := boards
EXTRAS_image := image
EXTRAS_pipeline := pipeline
EXTRAS_release := image
EXTRAS_test = boards,demo,emulate$(shell $(BIN)/python -c 'import sys; print(",pipeline" * (sys.version_info >= (3, 11)))')
GROUPS := docs release test

# Installs packages with apt-get where that can be done without asking; fails where it cannot.
define apt_install
if command -v apt-get >/dev/null; then \
	  if [ "$$(id -u)" = 0 ]; then as_root="env"; \
	  elif sudo -n true 2>/dev/null; then as_root="sudo -n env"; fi; \
	fi; \
	[ -n "$$as_root" ] && echo "installing $(1) with apt-get ..." && \
	$$as_root DEBIAN_FRONTEND=noninteractive apt-get update -qq && \
	$$as_root DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1) >/dev/null
endef

.PHONY: help demo tools test test-board proofs lint docs release pipeline firmware flash deploy bench size \
  clean mosquitto chromium wasm aedes

help:
	@echo "make demo      a sketch publishes, this machine receives; a few seconds"
	@echo "make tools     the flatmq command for boards, and the client for mip"
	@echo "make test      lint, types and tests; TESTS=host_tests/unit, WORKERS=0"
	@echo "make test-board  tests with a board: EMULATE=firmware.uf2 or BOARD_PORT=..."
	@echo "make proofs    every proof in its long form, in hours; writes docs/results.md"
	@echo "make lint      ruff, mypy, the boards' types, and who writes client state"
	@echo "make docs      the documentation as a site, in build/site"
	@echo "make release   the wheel, the sdist and the packages for mip, in build/release"
	@echo "make pipeline  200 boards, the ingest, Spark's jobs, the report; two minutes"
	@echo "make firmware  an image: BOARD=pico_w; FIRMWARE, SKETCH, SET, FLASH_SIZE"
	@echo "make flash     write that image to a board: BOARD=pico_w; PORT"
	@echo "make deploy    write a sketch to a running board: BOARD; PORT, SKETCH, SET"
	@echo "make bench     flatmq beside other clients; writes docs/results.md"
	@echo "make size      the client's memory and start; writes docs/results.md"
	@echo "make clean     remove .venv and what was built"
	@echo "More measurements: $(BIN)/python -m flatmq_rigs --help, after make test"

demo: $(VENV)/demo.stamp
	@$(BIN)/flatmq demo $(if $(READINGS),--readings $(READINGS))

pipeline: $(VENV)/py311.stamp $(VENV)/demo.stamp $(VENV)/pipeline.stamp
	@$(BIN)/flatmq pipeline demo build/pipeline

test: mosquitto wasm aedes lint
	@$(BIN)/pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(TESTS)

# The variables are in host_tests/hil/__main__.py.
test-board: $(VENV)/test.stamp mosquitto
	@$(if $(EMULATE),EMULATE="$(EMULATE)") $(BIN)/python -m flatmq_rigs board

proofs: mosquitto chromium wasm aedes lint
	@$(BIN)/python -m flatmq_rigs proofs --results docs/results.md

firmware: $(VENV)/image.stamp
	@$(if $(BOARD),,echo "make firmware BOARD=...: one of" $(basename $(notdir $(wildcard firmware/*.toml))) >&2; exit 1)
	@$(BIN)/flatmq image $(BOARD)$(if $(FIRMWARE), --firmware "$(FIRMWARE)")$(if $(SKETCH), --sketch "$(SKETCH)")$(if $(SET), --set "$(SET)")$(if $(FLASH_SIZE), --flash-size $(FLASH_SIZE))

flash: $(VENV)/boards.stamp
	@$(if $(and $(BOARD),$(wildcard build/$(BOARD).*)),,echo "make flash BOARD=...: make firmware BOARD=... FIRMWARE=... comes first" >&2; exit 1)
	@$(BIN)/flatmq flash $(BOARD) $(firstword $(wildcard build/$(BOARD).*))$(if $(PORT), --port $(PORT))

deploy: $(VENV)/boards.stamp
	@$(if $(BOARD),,echo "make deploy BOARD=...: one of" $(basename $(notdir $(wildcard firmware/*.toml))) >&2; exit 1)
	@$(BIN)/flatmq deploy $(BOARD)$(if $(PORT), --port $(PORT))$(if $(SKETCH), --sketch "$(SKETCH)")$(if $(SET), --set "$(SET)")

tools: $(VENV)/boards.stamp build/mip/package.json
	@echo "$(BIN)/flatmq is there; '. $(BIN)/activate' puts it on the PATH"

build/mip/package.json: $(VENV)/boards.stamp $(shell find lib -name '*.py')
	@echo "compiling the client for boards into build/mip ..."
	@$(BIN)/python -m flatmq_rigs packages build/mip

# With --quiet, mkdocs drops the warnings before --strict counts them.
docs: $(VENV)/docs.stamp
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open build/site/index.html; the search needs a server: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site"

release: $(VENV)/release.stamp
	@$(BIN)/python -m flatmq_rigs release build/release

lint: $(VENV)/test.stamp $(VENV)/stubs.stamp
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m flatmq_rigs owners
	@$(BIN)/python -m flatmq_rigs type-check $(VENV)/stubs

bench: $(VENV)/test.stamp mosquitto
	@-$(MAKE) --no-print-directory wasm
	@$(BIN)/python -m flatmq_rigs bench

# Without node or a network there are no figures of 32 bits, and the table says so.
size: $(VENV)/test.stamp
	@-$(MAKE) --no-print-directory wasm
	@$(BIN)/python -m flatmq_rigs size --results docs/results.md

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# A stamp is as new as the last installation for its target; the sources are used in place.
$(VENV)/%.stamp: pyproject.toml $(VENV)/made.stamp
	@echo "installing what 'make $*' needs into $(VENV) ..."
	@$(if $(filter $*,$(GROUPS)),$(PIP_INSTALL) "pip>=25.1",true)  # the first pip that has --group
	@$(PIP_INSTALL) --editable ".$(addprefix [,$(addsuffix ],$(EXTRAS_$*)))" $(if $(filter $*,$(GROUPS)),--group $*)
	@touch $@

$(VENV)/py311.stamp: $(VENV)/made.stamp
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "the pipeline needs Python 3.11 or later: make clean, then make pipeline PYTHON=..." >&2; exit 1; }
	@touch $@

# Each of them has modules of the same names.
$(VENV)/stubs.stamp: Makefile $(VENV)/made.stamp
	@echo "installing the types of MicroPython's ports into $(VENV)/stubs ..."
	@rm -rf $(VENV)/stubs
	@for stubs in $(STUBS); do \
	  $(PIP_INSTALL) --no-deps --target $(VENV)/stubs/$${stubs%%=*} $$stubs $(STDLIB_STUBS) || exit 1; \
	done
	@touch $@

$(VENV)/made.stamp:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "$(PYTHON) is missing: install Python 3.10 or later, or name it: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "$(PYTHON) is too old: Python 3.10 or later is needed: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make a venv: apt-get install python3-venv (Debian, Ubuntu)" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
	@printf '[bdist_wheel]\ncompression = stored\n' >$(VENV)/wheel.cfg
	@touch $@

# A broker for tests.
aedes: build/aedes/installed.stamp

build/aedes/installed.stamp: Makefile
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
	  $(call apt_install,nodejs npm) || \
	  { echo "node and npm are missing: install Node.js 20 or later (the tests start the broker aedes)" >&2; exit 1; }; \
	fi
	@echo "installing the broker aedes into build/aedes ..."
	@mkdir -p build/aedes
	@npm install --prefix build/aedes --no-audit --no-fund --ignore-scripts --loglevel=error $(AEDES) >/dev/null
	@touch $@

mosquitto:
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"; \
	if [ -n "$$MOSQUITTO" ] || command -v mosquitto >/dev/null; then exit 0; fi; \
	$(call apt_install,mosquitto) && exit 0; \
	echo "mosquitto is missing: apt-get install mosquitto (Debian, Ubuntu) or brew install mosquitto (macOS)" >&2; \
	exit 1

# A proof looks at the report in it.
chromium:
	@for name in "$$CHROMIUM" chromium chromium-browser google-chrome; do \
	  if [ -n "$$name" ] && command -v "$$name" >/dev/null; then exit 0; fi; \
	done; \
	$(call apt_install,chromium) && exit 0; \
	echo "there is no Chromium: install it, or name the program in CHROMIUM" >&2; \
	exit 1

wasm: $(VENV)/wasm.stamp
	@command -v node >/dev/null || { rm $(VENV)/wasm.stamp; $(MAKE) --no-print-directory wasm; }

$(VENV)/wasm.stamp: Makefile $(VENV)/made.stamp
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
	  $(call apt_install,nodejs npm) || \
	  { echo "node and npm are missing: apt-get install nodejs npm (Debian, Ubuntu) or brew install node (macOS)" >&2; exit 1; }; \
	fi
	@echo "installing the 32-bit MicroPython into $(VENV)/wasm ..."
	@mkdir -p $(VENV)/wasm
	@npm install --prefix $(VENV)/wasm --no-audit --no-fund --silent $(WASM) >/dev/null || \
	  { echo "npm could not install $(WASM): is there a network?" >&2; exit 1; }
	@touch $@
