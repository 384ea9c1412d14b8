# make up: install what the lock file names, then start everything. make test, make verify: the checks.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help up test verify contract story desk manictime attacks long bench lock wheel clean
CLAUDE := test_it_plays_the_conversation_and_reads_the_notice_with_its_next_result
LOCK := .venv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --quiet

help: ## what there is
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' Makefile

up: .venv/.run ## start the whole fleet with its sandbox
	@exec .venv/bin/butlers up

test: .venv/.dev ## every check that a change needs
	@exec .venv/bin/python -m tests.run test

verify: .venv/.dev ## the long checks
	@exec .venv/bin/python -m tests.run verify

contract: .venv/.dev ## the notify contract, scenario by scenario
	@exec .venv/bin/python -m tests.contract

story: .venv/.dev ## one conversation from end to end: four runtimes, and a kill after each step
	@exec .venv/bin/pytest -q --whole tests/story tests/verify/test_claude_runtime.py::$(CLAUDE)

manictime: .venv/.dev ## the timekeeper's contract, leaf by leaf
	@exec .venv/bin/pytest -q tests/manictime

desk: .venv/.dev ## the popup and the notifications, with real windows
	@exec .venv/bin/pytest -q tests/desk

attacks: .venv/.dev ## the attack corpus, class by class
	@exec .venv/bin/python -m tests.attacks

long: .venv/.dev ## hours of them
	@exec .venv/bin/python -m tests.run long

bench: .venv/.dev ## measure
	@exec .venv/bin/python -m tests.bench

lock: .venv/.dev ## write both lock files anew from pyproject.toml, and that of the older clients
	@$(LOCK) pyproject.toml --extra build --extra desktop --extra manictime --output-file requirements.lock
	@$(LOCK) pyproject.toml --extra build --extra desktop --extra manictime --extra agent --extra dev --constraints requirements.lock --output-file requirements-dev.lock
	@printf 'fastmcp<3\nmcp<2\n' | $(LOCK) - --output-file tests/verify/clients/older.lock

wheel: .venv/.dev ## build dist/*.whl
	@.venv/bin/python -m build --wheel --no-isolation

clean: ## remove what the tools made, but no installation's data
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

.venv/.run: requirements.lock pyproject.toml
	@sh .ci/install requirements.lock
	@touch $@

.venv/.dev: requirements-dev.lock pyproject.toml
	@sh .ci/install requirements-dev.lock
	@touch .venv/.run $@
